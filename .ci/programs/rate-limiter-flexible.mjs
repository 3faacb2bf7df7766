// The example of rate-limiter-flexible's README, up to the first request that is rejected.
import assert from "node:assert";
import { Redis } from "ioredis";
import { RateLimiterRedis, RateLimiterRes } from "rate-limiter-flexible";

const storeClient = new Redis("redis://" + process.env.ADDRS, { enableOfflineQueue: true });
const limiter = new RateLimiterRedis({ storeClient, points: 6, duration: 3600, blockDuration: 3600 });

await limiter.consume("127.0.0.1", 2);
await limiter.consume("127.0.0.1", 4);
const rejected = await limiter.consume("127.0.0.1").then(() => assert.fail("consumed"), (res) => res);
assert(rejected instanceof RateLimiterRes, String(rejected));
assert.equal(rejected.consumedPoints, 7);
await limiter.delete("127.0.0.1");
assert.equal((await limiter.penalty("127.0.0.1", 3)).consumedPoints, 3);
assert.equal((await limiter.get("127.0.0.1")).remainingPoints, 3);
storeClient.disconnect();
