// Reads, writes and counts through ioredis's cluster client with its defaults, until standard input ends, and checks each
// reply. Prints a line for each 100 rounds, for each error, and at the end. Arguments: host:port of the stores.
const Redis = require('ioredis');
const nodes = process.argv.slice(2).map((a) => ({ host: a.split(':')[0], port: +a.split(':')[1] }));
const cluster = new Redis.Cluster(nodes);
let stopped = false;
let rounds = 0;
let errors = 0;
process.stdin.on('end', () => { stopped = true; });
process.stdin.resume();

function fail(text) {
  errors++;
  console.log('error ' + text);
}

async function work(id) {
  for (let n = 1; !stopped; n++) {
    const i = n % 200;
    const round = Math.floor(n / 200) + (i === 0 ? 0 : 1);
    try {
      const count = await cluster.incr(`io-count-${id}-${i}`);
      if (count !== round) fail(`INCR io-count-${id}-${i} is ${count}; want ${round}`);
      await cluster.set(`io-value-${id}-${i}`, n);
      const value = await cluster.get(`io-value-${id}-${i}`);
      if (value !== String(n)) fail(`io-value-${id}-${i} is ${value}; want ${n}`);
      const all = await Promise.all(Array.from({ length: 20 }, (_, j) => cluster.hincrby(`io-hash-${id}-${j}`, 'f', 1)));
      if (all.some((x) => x !== n)) fail(`HINCRBY ${all}; want ${n}`);
    } catch (e) {
      fail(`${e.name}: ${e.message}`);
    }
    if (++rounds % 100 === 0) console.log(`rounds ${rounds}`);
    await new Promise((done) => setTimeout(done, 2));
  }
}

cluster.on('error', (e) => fail(`event: ${e.message}`));
Promise.all(Array.from({ length: 8 }, (_, id) => work(id))).then(() => {
  console.log(`end: ${rounds} rounds, ${errors} errors`);
  cluster.disconnect();
});
