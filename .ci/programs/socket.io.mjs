// The example of the documentation of @socket.io/redis-adapter: two servers of socket.io, whose clients get what either
// server, or an emitter without a server, sends to all or to a room.
import assert from "node:assert";
import { createServer } from "node:http";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient, createCluster } from "redis";
import { Server } from "socket.io";
import { io as connect } from "socket.io-client";
import { createAdapter, createShardedAdapter } from "@socket.io/redis-adapter";
import { Emitter } from "@socket.io/redis-emitter";

const hurt = Boolean(process.env.HURT);
const addrs = process.env.ADDRS.split(",");
const many = addrs.length > 1;
let failed = 0; // what the adapters could not publish: they do not wait for it
const fail = (err) => {
  if (!hurt) throw err;
  failed++;
};
process.on("unhandledRejection", fail);
const dial = async () => {
  const urls = addrs.map((addr) => ({ url: `redis://${addr}` }));
  const client = many ? createCluster({ rootNodes: urls }) : createClient(urls[0]);
  client.on("error", (err) => {
    if (!hurt) throw err;
  });
  await client.connect();
  return client;
};
// attempt tries until it succeeds, for half a minute if the cluster was hurt.
const attempt = async (what) => {
  for (const end = Date.now() + 30_000; ; await sleep(50)) {
    try {
      return await what();
    } catch (err) {
      if (!hurt || Date.now() > end) throw err;
    }
  }
};

let sent = 0,
  missed = 0;
for (const adapter of [createAdapter, createShardedAdapter]) {
  const servers = [],
    sockets = [];
  for (let i = 0; i < 2; i++) {
    const [pub, sub] = [await attempt(dial), await attempt(dial)];
    const http = createServer();
    const server = new Server(http, { adapter: adapter(pub, sub) });
    server.on("connection", (socket) =>
      socket.on("join", (room, done) => {
        socket.join(room);
        done();
      }),
    );
    http.listen(0, "127.0.0.1");
    await once(http, "listening");
    servers.push(server);
    const socket = connect(`http://127.0.0.1:${http.address().port}`);
    await once(socket, "connect");
    sockets.push(socket);
  }
  await Promise.all(sockets.map((s) => s.emitWithAck("join", "room")));
  // A cluster client publishes at any node, and on shard channels sends again later what it was redirected with.
  const sharded = adapter === createShardedAdapter && !hurt;
  const senders = [{ name: "news", to: servers[0], inOrder: !many || sharded }];
  if (adapter === createAdapter)
    senders.push({ name: "emitted", to: new Emitter(await attempt(dial)), inOrder: !many });

  // Each client gets what was sent: nothing twice, and in order as far as that is sent. What is sent while a connection
  // to Redis is broken does not come to the other server.
  for (const sender of senders) {
    sender.got = sockets.map((s) => {
      const all = [];
      s.on(sender.name, (n) => all.push(n));
      return all;
    });
    sender.to.to("room").emit(sender.name, -1);
  }
  for (const { name, to, got } of senders) {
    for (let tries = 0; got.some((g) => g.length === 0); tries++) {
      assert(tries < 300, `${name} does not come`);
      to.to("room").emit(name, -1);
      await sleep(100);
    }
  }
  let n = 0;
  for (const end = Date.now() + (1000 * process.env.FOR) / 2; Date.now() < end; n++) {
    for (const { name, to } of senders) to.to("room").emit(name, n);
    await sleep(1);
  }
  for (const { name, to, got } of senders) {
    const last = hurt ? n : n - 1; // what was lost does not come, but all hear what follows
    for (let tries = 0; got.some((g) => !g.includes(last)); tries++) {
      assert(tries < 300, `${name} does not come to the end`);
      if (hurt) to.to("room").emit(name, n);
      await sleep(100);
    }
  }
  for (const { name, to, inOrder, got } of senders) {
    got.forEach((all, i) => {
      const numbers = all.filter((k) => k >= 0 && k < n);
      if (!inOrder) numbers.sort((a, b) => a - b);
      numbers.forEach((k, j) => assert(j === 0 || numbers[j - 1] < k, `${name} ${k} comes behind ${numbers[j - 1]}`));
      const local = i === 0 && to === servers[0];
      if (!hurt || local) assert.equal(numbers.length, n, `${name}: ${numbers.length} of ${n} come to client ${i}`);
      missed += n - numbers.length;
    });
    sent += n;
  }

  // Servers ask each other, too.
  servers[1].on("hello", (reply) => reply("world"));
  await attempt(async () => {
    assert.strictEqual((await servers[0].fetchSockets()).length, 2);
    assert.strictEqual((await servers[1].in("room").fetchSockets()).length, 2);
    const answers = new Promise((done) => servers[0].serverSideEmit("hello", (err, all) => done([err, all])));
    assert.deepStrictEqual(await answers, [null, ["world"]]);
  });
  for (const s of sockets) s.disconnect();
  await Promise.all(servers.map((s) => s.close()));
}
console.log(`${sent} messages for two clients each, none twice; ${failed} not published, ${missed} not heard`);
process.exit(0);
