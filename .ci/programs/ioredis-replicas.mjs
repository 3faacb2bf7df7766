// scaleReads of ioredis's README: "slave", "all", and a function. A read right behind the write has its value.
import assert from "node:assert";
import { Cluster } from "ioredis";

const addrs = process.env.ADDRS.split(",").map((addr) => {
  const [host, port] = addr.split(":");
  return { host, port: Number(port) };
});
for (const scaleReads of ["slave", "all", (nodes) => nodes[nodes.length - 1]]) {
  const cluster = new Cluster(addrs, { scaleReads });
  for (let i = 0; i < 100; i++) {
    const key = "replica_" + (i % 30);
    assert.equal(await cluster.set(key, i), "OK");
    assert.equal(await cluster.get(key), String(i));
  }
  assert.equal(cluster.nodes("master").length, 3);
  assert.equal(cluster.nodes("slave").length, 3);
  const keys = await Promise.all(cluster.nodes("slave").map((node) => node.dbsize()));
  assert.equal(keys.reduce((a, b) => a + b), 60); // each key at both of its replicas
  cluster.disconnect();
}
