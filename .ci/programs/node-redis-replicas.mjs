// useReplicas of node-redis's documentation. A read right behind the write has its value.
import assert from "node:assert";
import { createCluster } from "redis";

const rootNodes = process.env.ADDRS.split(",").map((addr) => ({ url: "redis://" + addr }));
const cluster = createCluster({ rootNodes, useReplicas: true });
await cluster.connect();
for (let i = 0; i < 100; i++) {
  const key = "replica_" + (i % 30);
  assert.equal(await cluster.set(key, String(i)), "OK");
  assert.equal(await cluster.get(key), String(i));
}
assert.equal(cluster.masters.length, 3);
assert.equal(cluster.replicas.length, 3);
await cluster.close();
