"""Readers of rq's queues: each job that was enqueued is read once.

A job is lost if the connection breaks by which it is read, as BLPOP has it. Where nobody knows whether a job was
enqueued, it is enqueued again, and may then be read twice.
"""

import os
import threading
import time

import redis
from rq import Queue
from rq.exceptions import DequeueTimeout

HURT = "HURT" in os.environ
enqueued = {}  # how often each job may have been enqueued
read = {}
failed = 0
wrong = []
ended = False
lock = threading.Lock()


def connect():
    return redis.Redis.from_url("redis://" + os.environ["ADDRS"])


def reader():
    global failed
    connection = connect()
    queues = [Queue(name, connection=connection) for name in ("high", "low")]
    while not ended:
        try:
            found = Queue.dequeue_any(queues, 1, connection=connection)
        except DequeueTimeout:
            continue
        except redis.RedisError as err:
            with lock:
                failed += 1
                if not HURT:
                    wrong.append(repr(err))
            time.sleep(0.01)
            continue
        if found is None:
            continue
        id = found[0].id
        with lock:
            read[id] = read.get(id, 0) + 1
            if read[id] > enqueued[id]:
                wrong.append(f"{id} was read {read[id]} times and enqueued {enqueued[id]} times")


readers = [threading.Thread(target=reader) for _ in range(3)]
for r in readers:
    r.start()
connection = connect()
queues = [Queue(name, connection=connection) for name in ("high", "low")]
again = n = 0
begin = time.time()
while time.time() - begin < float(os.environ["FOR"]):
    id = f"job-{n}"
    while True:
        with lock:
            enqueued[id] = enqueued.get(id, 0) + 1
        try:
            queues[n % 2].enqueue("math.sqrt", n, job_id=id)
            break
        except redis.RedisError:
            if not HURT:
                raise
            again += 1
            time.sleep(0.01)
    n += 1
    time.sleep(0.002)

begin = time.time()
while len(read) < n and time.time() - begin < (15 if failed else 60):
    time.sleep(0.01)
ended = True
for r in readers:
    r.join()
lost = n - len(read)
if lost > failed:
    wrong.append(f"of {n} jobs {lost} are lost, and {failed} reads failed")
assert not wrong, "\n".join(wrong[:10])
twice = sum(read.values()) - len(read)
print(f"{n} jobs, {lost} lost in {failed} reads that failed, {twice} read twice; {again} enqueued again")
