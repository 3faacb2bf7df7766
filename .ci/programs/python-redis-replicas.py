"""read_from_replicas of redis-py's documentation. A read right behind the write has its value."""

import os

from redis.cluster import ClusterNode, RedisCluster

nodes = [ClusterNode(*addr.split(":")) for addr in os.environ["ADDRS"].split(",")]
rc = RedisCluster(startup_nodes=nodes, read_from_replicas=True)
for i in range(100):
    key = "replica_%d" % (i % 30)
    assert rc.set(key, i)
    assert rc.get(key) == str(i).encode()
assert len(rc.get_primaries()) == 3
assert len(rc.get_replicas()) == 3
# What a replica has of CLUSTER NODES, as redis-py parses it.
flags = sorted(node["flags"] for node in rc.cluster_nodes().values())
assert flags.count("slave") + flags.count("myself,slave") == 3, flags
