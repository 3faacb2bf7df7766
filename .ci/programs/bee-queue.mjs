// The example of bee-queue's README: a queue to which jobs are added, some for later, and two that work on them. Its
// name is a hash tag, since its keys have to be in one slot where there are slots.
import assert from "node:assert";
import BeeQueue from "bee-queue";
import { run, works } from "./jobs.mjs";

const [host, port] = process.env.ADDRS.split(":");
const stallInterval = 2000; // a job of which its worker tells nothing for so long has stalled
const make = (settings) =>
  new BeeQueue("{example}", { redis: { host, port: Number(port) }, stallInterval, removeOnSuccess: false, ...settings })
    .on("error", () => {});

const queue = make({ isWorker: false });
let stalled = 0;
for (let i = 0; i < 2; i++) {
  const worker = make({ activateDelayedJobs: true });
  worker.process(10, async (job) => {
    works(job.id, stallInterval / 2);
    return job.data.x + job.data.y;
  });
  worker.on("stalled", () => stalled++);
  worker.checkStalledJobs(500);
}
const did = await run(async (id) => {
  const job = queue.createJob({ x: 2, y: 3 }).setId(id);
  if (id % 10 === 0) job.delayUntil(Date.now() + 500);
  await job.save();
});

// All come to be known as done.
for (let tries = 0; ; tries++) {
  const health = await queue.checkHealth().catch(() => ({}));
  if (health.succeeded === parseInt(did)) {
    console.log(`${did}; ${stalled} stalled`);
    process.exit(0);
  }
  assert(tries < 300, `behind ${did}: ${JSON.stringify(health)}`);
  await new Promise((done) => setTimeout(done, 100));
}
