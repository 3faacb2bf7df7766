// Does with a client in JavaScript what standard input asks for, a line each: ID COMMAND KEY VALUE. Answers each with
// "ID ok NUMBER" or "ID error TEXT", in any order. Arguments: the client, and host:port of the stores.
const [kind, ...addrs] = process.argv.slice(2);

function ioredis(scaleReads) {
  const Redis = require('ioredis');
  const nodes = addrs.map((a) => ({ host: a.split(':')[0], port: +a.split(':')[1] }));
  return new Redis.Cluster(nodes, { scaleReads });
}

async function nodeRedis(options) {
  const { createCluster } = require('redis');
  const cluster = createCluster({ rootNodes: addrs.map((a) => ({ url: `redis://${a}` })), ...options });
  cluster.on('error', () => {});
  await cluster.connect();
  return cluster;
}

const clients = {
  'ioredis slave': () => ioredis('slave'),
  'ioredis all': () => ioredis('all'),
  'node-redis': () => nodeRedis({ useReplicas: true }),
};

(async () => {
  const client = await clients[kind]();
  console.log('ready');
  const lines = require('readline').createInterface({ input: process.stdin });
  lines.on('line', async (line) => {
    const [id, command, key, value] = line.split(' ');
    try {
      const reply = await (command === 'set' ? client.set(key, value) : client[command](key));
      console.log(`${id} ok ${command === 'set' ? 0 : Number(reply)}`);
    } catch (e) {
      console.log(`${id} error ${e.constructor.name}: ${e.message}`);
    }
  });
  lines.on('close', () => process.exit());
})();
