// The example of the documentation of @socket.io/redis-adapter: two servers of socket.io, whose clients get what either
// server, or an emitter without a server, sends to all or to a room.
import assert from "node:assert";
import { createServer } from "node:http";
import { once } from "node:events";
import { createClient, createCluster } from "redis";
import { Server } from "socket.io";
import { io as connect } from "socket.io-client";
import { createAdapter, createShardedAdapter } from "@socket.io/redis-adapter";
import { Emitter } from "@socket.io/redis-emitter";

const addrs = process.env.ADDRS.split(",");
const many = addrs.length > 1;
const dial = async () => {
  const urls = addrs.map((addr) => ({ url: `redis://${addr}` }));
  const client = many ? createCluster({ rootNodes: urls }) : createClient(urls[0]);
  client.on("error", (err) => {
    throw err;
  });
  await client.connect();
  return client;
};

for (const adapter of [createAdapter, createShardedAdapter]) {
  const servers = [],
    sockets = [];
  for (let i = 0; i < 2; i++) {
    const [pub, sub] = [await dial(), await dial()];
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

  // The server that sends and the other one's clients get all messages.
  const got = sockets.map((s) => {
    const all = [];
    s.on("news", (n) => all.push(n));
    return all;
  });
  for (let i = 0; i < 500; i++) servers[0].to("room").emit("news", i);
  const all = [...Array(500).keys()];
  for (const s of sockets) await new Promise((done) => s.emit("join", "other", done));
  for (let tries = 0; got.some((g) => g.length < 500) && tries < 500; tries++)
    await new Promise((r) => setTimeout(r, 10));
  for (const g of got) {
    if (many && adapter === createAdapter) g.sort((a, b) => a - b); // the adapter publishes at any node
    assert.deepStrictEqual(g, all);
  }

  // Servers ask each other, too.
  assert.strictEqual((await servers[0].fetchSockets()).length, 2);
  assert.strictEqual((await servers[1].in("room").fetchSockets()).length, 2);
  const answers = new Promise((done) => servers[0].serverSideEmit("hello", (err, all) => done([err, all])));
  assert.deepStrictEqual(
    await (async () => {
      servers[1].on("hello", (reply) => reply("world"));
      return answers;
    })(),
    [null, ["world"]],
  );

  if (adapter === createAdapter) {
    const emitter = new Emitter(await dial());
    const heard = Promise.all(sockets.map((s) => once(s, "emitted")));
    emitter.to("room").emit("emitted", "hello");
    for (const [text] of await heard) assert.strictEqual(text, "hello");
  }

  for (const s of sockets) s.disconnect();
  await Promise.all(servers.map((s) => s.close()));
}
process.exit(0);
