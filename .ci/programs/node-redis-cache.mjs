// node-redis with its client-side cache: no value stays in it that another client has changed.
import assert from "node:assert";
import { setTimeout as sleep } from "node:timers/promises";
import { BasicClientSideCache, createClient } from "redis";

const url = "redis://" + process.env.ADDRS.split(",")[0];
const cache = new BasicClientSideCache({ ttl: 0, maxEntries: 0, evictPolicy: "LRU" });
const client = await createClient({ url, RESP: 3, clientSideCache: cache }).on("error", () => {}).connect();
const writer = await createClient({ url }).on("error", () => {}).connect();

let writes = 0;
for (let end = Date.now() + 1000 * process.env.FOR; writes < 100 || Date.now() < end; ) {
  const key = "cached" + (writes % 20);
  try {
    await writer.set(key, String(writes));
  } catch {
    continue; // no leader at the moment
  }
  for (const begin = Date.now(); ; await sleep(1)) {
    const got = await client.get(key).catch(() => null);
    if (got === (await writer.get(key).catch(() => ""))) break;
    assert(Date.now() < begin + 20_000, `${key} is ${got}, 20 s after ${writes} was written`);
  }
  for (let i = 0; i < 20; i++) await client.get("cached" + i).catch(() => null);
  writes++;
}
const stats = cache.stats();
assert(stats.hitCount > writes, `${stats.hitCount} hits of the cache`);
console.log(`${writes} writes came to be seen, ${stats.hitCount} hits, ${stats.missCount} misses`);
await client.close();
await writer.close();
