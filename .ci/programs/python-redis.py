"""The examples of the documentation of Python's client: the default pipeline, transaction, WATCH, scripts, locks."""

import os

import redis

host, port = os.environ["ADDRS"].split(",")[0].split(":")
r = redis.Redis(host=host, port=int(port))

# The default pipeline is a transaction.
assert r.pipeline().set("py_foo", "bar").sadd("py_faz", "baz").incr("py_auto_number").execute() == [True, 1, 1]

r.set("py_seq", 1)
with r.pipeline() as pipe:
    pipe.watch("py_seq")
    n = int(pipe.get("py_seq"))
    r.incr("py_seq")
    pipe.multi()
    pipe.set("py_seq", n + 1)
    try:
        pipe.execute()
        raise AssertionError("no WatchError")
    except redis.WatchError:
        pass


def increment(pipe):
    n = int(pipe.get("py_seq"))
    pipe.multi()
    pipe.set("py_seq", n + 1)


assert r.transaction(increment, "py_seq") == [True]
assert r.get("py_seq") == b"3"

lua = """
local value = redis.call('GET', KEYS[1])
value = tonumber(value)
return value * ARGV[1]"""
multiply = r.register_script(lua)
r.set("py_two", 2)
assert multiply(keys=["py_two"], args=[5]) == 10
pipe = r.pipeline()
pipe.set("py_two", 3)
multiply(keys=["py_two"], args=[5], client=pipe)
assert pipe.execute() == [True, 15]

with r.lock("py_lock", timeout=60) as lock:
    assert not r.lock("py_lock", timeout=60).acquire(blocking=False)
    lock.extend(60)
    lock.reacquire()
assert not r.exists("py_lock")
