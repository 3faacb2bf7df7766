// The examples of ioredis's README: multi, its pipeline: false form, WATCH, and defineCommand.
import assert from "node:assert";
import { Cluster, Redis } from "ioredis";

const addrs = process.env.ADDRS.split(",").map((addr) => {
  const [host, port] = addr.split(":");
  return { host, port: Number(port) };
});
const redis = addrs.length > 1 ? new Cluster(addrs) : new Redis(addrs[0]);

assert.deepEqual(await redis.multi().set("ioredis_foo", "bar").get("ioredis_foo").exec(), [
  [null, "OK"],
  [null, "bar"],
]);
// A wrong command breaks the transaction.
const broken = redis.multi().set("ioredis_foo").set("ioredis_foo", "new value").exec();
await assert.rejects(broken, { message: /EXECABORT/ });
// An error at run time is a result.
const results = await redis.multi().lpush("ioredis_foo", "a").get("ioredis_foo").exec();
assert.match(results[0][0].message, /^WRONGTYPE/);
assert.deepEqual(results[1], [null, "bar"]);

if (addrs.length === 1) {
  await redis.multi({ pipeline: false });
  assert.equal(await redis.set("ioredis_foo", "baz"), "QUEUED");
  assert.deepEqual(await redis.exec(), [[null, "OK"]]);
  await redis.watch("ioredis_foo");
  const rival = redis.duplicate();
  await rival.set("ioredis_foo", "rival");
  assert.equal(await redis.multi().set("ioredis_foo", "mine").exec(), null);
  rival.disconnect();
}

redis.defineCommand("myecho", { numberOfKeys: 2, lua: "return {KEYS[1],KEYS[2],ARGV[1],ARGV[2]}" });
const echoed = ["{k}1", "{k}2", "a1", "a2"];
assert.deepEqual(await redis.myecho(...echoed), echoed);
assert.deepEqual(await redis.multi().set("{k}1", "v").myecho(...echoed).exec(), [
  [null, "OK"],
  [null, echoed],
]);
redis.disconnect();
