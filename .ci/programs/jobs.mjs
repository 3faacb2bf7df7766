// What the queues of jobs have in common. Jobs are added for a while, and again under the same id where nobody knows
// whether they have been. Each is worked on; again only if the cluster is hurt, and not before its worker can have been
// taken for dead.
import { setTimeout as sleep } from "node:timers/promises";

const hurt = Boolean(process.env.HURT);
const begun = new Map(); // when each job was last worked on
const wrong = [];
let again = 0;

// works notes that a job is worked on.
export function works(id, deadAfterMS) {
  const since = Date.now() - begun.get(id); // NaN at first
  if (since < deadAfterMS || (since >= 0 && !hurt)) wrong.push(`job ${id} comes again after ${since} ms`);
  if (since >= 0) again++;
  begun.set(id, Date.now());
}

// run adds jobs by add(id), five at a time, waits until all are done, and says what happened.
export async function run(add) {
  let added = 0,
    unknown = 0;
  const end = Date.now() + 1000 * process.env.FOR;
  const adds = async (id) => {
    for (;;) {
      try {
        return await add(id);
      } catch (err) {
        if (!hurt || Date.now() > end + 30_000) throw err;
        unknown++;
        await sleep(10);
      }
    }
  };
  for (; Date.now() < end; await sleep(10))
    await Promise.all([1, 2, 3, 4, 5].map(() => adds(String(added++))));
  for (const end = Date.now() + 60_000; begun.size < added && Date.now() < end; ) await sleep(10);
  const lost = [...Array(added).keys()].filter((id) => !begun.has(String(id)));
  if (lost.length > 0) wrong.push(`of ${added} jobs ${lost.length} are lost: ${lost.slice(0, 10)}`);
  if (wrong.length > 0) throw new Error(wrong.slice(0, 10).join("\n"));
  return `${added} jobs, none lost, ${again} worked on again; ${unknown} added again`;
}
