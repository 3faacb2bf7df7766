// The examples of redlock's README: lock, extend, unlock, and several resources at once.
import assert from "node:assert";
import { Redis } from "ioredis";
import Redlock from "redlock";

const client = new Redis("redis://" + process.env.ADDRS);
const redlock = new Redlock([client], { retryCount: 0 });

const lock = await redlock.lock("locks:account:322456", 60_000);
await assert.rejects(redlock.lock("locks:account:322456", 60_000), Redlock.LockError);
const longer = await lock.extend(120_000);
await longer.unlock();
const both = await redlock.lock(["locks:account:322456", "locks:account:322457"], 60_000);
await assert.rejects(redlock.lock("locks:account:322457", 60_000), Redlock.LockError);
await both.unlock();
client.disconnect();
