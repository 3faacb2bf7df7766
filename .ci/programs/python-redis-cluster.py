"""The cluster client of Python's redis: commands, a pipeline over slots, a script for one key."""

import os

from redis.cluster import ClusterNode, RedisCluster

nodes = [ClusterNode(*addr.split(":")) for addr in os.environ["ADDRS"].split(",")]
rc = RedisCluster(startup_nodes=nodes)

with rc.pipeline() as pipe:
    pipe.set("pc_foo", "value1")
    pipe.set("pc_bar", "value2")
    pipe.get("pc_foo")
    pipe.get("pc_bar")
    assert pipe.execute() == [True, True, b"value1", b"value2"]
assert rc.mset_nonatomic({"{pc}a": 1, "{pc}b": 2, "pc_c": 3})
assert rc.eval("return redis.call('INCRBY', KEYS[1], ARGV[1])", 1, "pc_count", 2) == 2
