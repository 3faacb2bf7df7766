"""Does with redis-py what standard input asks for, as rider.js does. Arguments: host:port of the stores."""

import logging
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from redis.cluster import ClusterNode, RedisCluster

logging.disable()  # the client logs errors that it handles
own = threading.local()  # each thread has a client of its own: threads that share one break it where nodes change


def connect():
    nodes = [ClusterNode(*addr.split(":")) for addr in sys.argv[1:]]
    own.client = RedisCluster(startup_nodes=nodes, read_from_replicas=True)


def answer(line):
    id, command, *args = line.split()
    try:
        reply = getattr(own.client, command)(*args)
        said = "ok %d" % (0 if command == "set" else int(reply or 0))
    except Exception as e:
        said = "error %s: %s" % (type(e).__name__, str(e).replace("\n", " "))
    sys.stdout.write("%s %s\n" % (id, said))
    sys.stdout.flush()


print("ready", flush=True)
with ThreadPoolExecutor(8, initializer=connect) as pool:
    for line in sys.stdin:
        pool.submit(answer, line)
