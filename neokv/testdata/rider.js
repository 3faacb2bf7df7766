// Does with a client in JavaScript what standard input asks for, a line each: ID COMMAND ARGUMENTS. Answers each with
// "ID ok REPLY", with commas in a list and nothing for null, or "ID error TEXT", in any order. Arguments: the client,
// and host:port of the stores. The commands are Redis's, and transact and script, which set a key and get it.
const [kind, ...addrs] = process.argv.slice(2);
const setAndGet = "redis.call('set', KEYS[1], ARGV[1]) return redis.call('get', KEYS[1])";

function ioredis(options) {
  const Redis = require('ioredis');
  const nodes = addrs.map((a) => ({ host: a.split(':')[0], port: +a.split(':')[1] }));
  const cluster = new Redis.Cluster(nodes, options);
  cluster.transact = async (key, value) => {
    const replies = await cluster.multi().set(key, value).get(key).exec();
    const failed = replies.find(([error]) => error);
    if (failed) throw failed[0];
    return replies[1][1];
  };
  cluster.script = (key, value) => cluster.eval(setAndGet, 1, key, value);
  return cluster;
}

async function nodeRedis(options) {
  const { createCluster } = require('redis');
  const cluster = createCluster({ rootNodes: addrs.map((a) => ({ url: `redis://${a}` })), ...options });
  cluster.on('error', () => {});
  cluster.mget = (...keys) => cluster.mGet(keys);
  cluster.mset = (...pairs) => cluster.mSet(pairs);
  cluster.transact = async (key, value) => (await cluster.multi().set(key, value).get(key).exec())[1];
  cluster.script = (key, value) => cluster.eval(setAndGet, { keys: [key], arguments: [value] });
  await cluster.connect();
  return cluster;
}

const clients = {
  'ioredis': () => ioredis(),
  'ioredis slave': () => ioredis({ scaleReads: 'slave' }),
  'ioredis all': () => ioredis({ scaleReads: 'all' }),
  'node-redis': () => nodeRedis(),
  'node-redis replicas': () => nodeRedis({ useReplicas: true }),
};

(async () => {
  const client = await clients[kind]();
  console.log('ready');
  const lines = require('readline').createInterface({ input: process.stdin });
  lines.on('line', async (line) => {
    const [id, command, ...args] = line.split(' ');
    try {
      console.log(`${id} ok ${[await client[command](...args)]}`);
    } catch (e) {
      console.log(`${id} error ${e.constructor.name}: ${e.message}`);
    }
  });
  lines.on('close', () => process.exit());
})();
