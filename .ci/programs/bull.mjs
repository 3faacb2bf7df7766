// The example of Bull's README: a queue to which jobs are added, some for later, and two that work on them. The prefix
// is a hash tag, as Bull's documentation asks for where there are slots.
import assert from "node:assert";
import { createRequire } from "node:module";
import Queue from "bull";
import { run, works } from "./jobs.mjs";

const { Cluster } = createRequire(import.meta.resolve("bull"))("ioredis"); // Bull's own
const nodes = process.env.ADDRS.split(",").map((addr) => {
  const [host, port] = addr.split(":");
  return { host, port: Number(port) };
});
const lockDuration = 2000; // a worker that does not renew its lock of a job for so long has stalled
const options = () => ({
  prefix: "{bull}",
  settings: { lockDuration, stalledInterval: 1000, maxStalledCount: 100, retryProcessDelay: 100 },
  ...(nodes.length === 1
    ? { redis: nodes[0] }
    : {
        createClient: () =>
          new Cluster(nodes, { redisOptions: { maxRetriesPerRequest: null, enableReadyCheck: false } }),
      }),
});

const queues = [];
for (let i = 0; i < 3; i++) queues.push(new Queue("video transcoding", options()).on("error", () => {}));
const [queue, ...workers] = queues;
let stalled = 0;
for (const worker of workers) {
  worker.on("stalled", () => stalled++);
  worker.process(10, async (job) => {
    works(job.id, 0.9 * lockDuration);
    return { framerate: 29.5 };
  });
}
const video = "http://example.com/video1.mov";
const did = await run((jobId) => queue.add({ video }, { jobId, delay: jobId % 10 ? 0 : 500 }));

// All come to be completed, but for those whose worker could not say so.
for (let tries = 0; ; tries++) {
  const counts = await queue.getJobCounts().catch(() => ({}));
  const { completed, failed } = counts;
  if (completed + failed === parseInt(did) && (process.env.HURT || failed === 0)) {
    console.log(`${did}; ${stalled} stalled, ${failed} called failed`);
    process.exit(0);
  }
  assert(tries < 300, `behind ${did}: ${JSON.stringify(counts)}`);
  await new Promise((done) => setTimeout(done, 100));
}
