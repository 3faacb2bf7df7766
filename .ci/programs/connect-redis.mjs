// The example of connect-redis's README, with express-session: a session is made, found again, counted and ended.
import assert from "node:assert";
import { createServer } from "node:http";
import { promisify } from "node:util";
import { RedisStore } from "connect-redis";
import session from "express-session";
import { createClient } from "redis";

const client = await createClient({ url: "redis://" + process.env.ADDRS }).connect();
const store = new RedisStore({ client, prefix: "myapp:" });
const withSession = session({ store, resave: false, saveUninitialized: false, secret: "keyboard cat" });
const server = createServer((req, res) => {
  withSession(req, res, (err) => {
    if (err) throw err;
    req.session.views = (req.session.views ?? 0) + 1;
    res.end(String(req.session.views));
  });
});
await promisify(server.listen).call(server, 0, "127.0.0.1");

let cookie = "";
for (const want of ["1", "2", "3"]) {
  const res = await fetch(`http://127.0.0.1:${server.address().port}/`, { headers: { cookie } });
  assert.equal(await res.text(), want);
  cookie ||= res.headers.get("set-cookie").split(";")[0];
}
const call = (name, ...args) => promisify(store[name]).apply(store, args);
assert.equal(await call("length"), 1);
const [id] = await call("ids");
assert.equal((await call("all"))[0].views, 3);
await call("destroy", id);
await call("clear");
assert.equal(await call("length"), 0);
server.close();
server.closeAllConnections();
await client.close();
