// The examples of node-redis's documentation: multi, WATCH, and scripts.
import assert from "node:assert";
import { createClient, createCluster, defineScript, WatchError } from "redis";

const urls = process.env.ADDRS.split(",").map((addr) => ({ url: "redis://" + addr }));
const scripts = {
  add: defineScript({
    NUMBER_OF_KEYS: 1,
    SCRIPT: "return redis.call('GET', KEYS[1]) + ARGV[1];",
    parseCommand(parser, key, n) {
      parser.pushKey(key);
      parser.push(n.toString());
    },
    transformReply: (reply) => reply,
  }),
};
const cluster = urls.length > 1;
const client = cluster ? createCluster({ rootNodes: urls, scripts }) : createClient({ ...urls[0], scripts });
await client.connect();

await client.set("{node}another-key", "another-value");
const replies = await client.multi().set("{node}key", "value").get("{node}another-key").exec();
assert.deepEqual(replies, ["OK", "another-value"]);

if (!cluster) {
  const rival = await client.duplicate().connect();
  await client.watch("{node}key");
  await rival.set("{node}key", "rival");
  await assert.rejects(client.multi().set("{node}key", "mine").exec(), WatchError);
  await client.watch("{node}key");
  assert.deepEqual(await client.multi().set("{node}key", "mine").exec(), ["OK"]);
  await rival.close();
}

await client.set("{node}number", "1");
assert.equal(await client.add("{node}number", 2), 3);
assert.equal(await client.eval("return ARGV[1]", { keys: ["{node}key"], arguments: ["x"] }), "x");
await client.close();
