"""The example of Celery's first steps: two workers, and a program that sends them tasks and asks for a result.

A message is lost if the connection breaks by which a worker gets it (BRPOP). One that a worker has got and not
acknowledged is delivered again, with a mark, when the visibility timeout is over. Celery's keys get a hash tag in
front, as its transport option global_keyprefix has it.
"""

import os
import re
import subprocess
import sys
import tempfile
import threading
import time

from celery import Celery

HURT = "HURT" in os.environ
url = "redis://" + os.environ["ADDRS"]
app = Celery("tasks", broker=url + "/0", backend=url + "/0")
app.conf.broker_transport_options = {"global_keyprefix": "{celery}", "visibility_timeout": 15}
app.conf.broker_connection_max_retries = None
app.conf.worker_hijack_root_logger = False


@app.task(name="add", bind=True)
def add(self, x, y):
    marked = self.request.delivery_info.get("redelivered") or False
    with open(os.environ["DONE"], "a") as done:
        done.write(f"{x} {int(marked)}\n")
    return x + y


if sys.argv[1:]:
    app.worker_main(sys.argv[1:])
    sys.exit()

folder = tempfile.TemporaryDirectory()
done = os.path.join(folder.name, "done")
open(done, "w").close()
logs = [os.path.join(folder.name, f"log{i}") for i in range(2)]
workers = [None] * len(logs)
ended = 0  # workers that have ended by themselves
over = False


def keep(i):
    """Starts a worker, and again if it ends, as the supervisor does that Celery's documentation asks for."""
    global ended
    while not over:
        with open(logs[i], "a") as log:
            workers[i] = subprocess.Popen(
                [sys.executable, __file__, "worker", "--concurrency=2", f"--hostname=w{i}@%h", "--loglevel=WARNING"],
                env={**os.environ, "DONE": done, "C_FORCE_ROOT": "1"},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        workers[i].wait()
        ended += not over


keepers = [threading.Thread(target=keep, args=(i,)) for i in range(len(logs))]
for keeper in keepers:
    keeper.start()


def work():
    """How often each task was worked on, and how often behind a mark."""
    all, marked = {}, 0
    with open(done) as lines:
        for line in lines:
            x, mark = map(int, line.split())
            marked += mark
            all[x] = all.get(x, 0) + 1 - mark
    return all, marked


def attempt(what, check):
    begin = time.time()
    while True:
        try:
            got = check()
            if got:
                return got
            err = "not yet"
        except Exception as e:
            err = e
        assert time.time() - begin < 60, f"{what}: {err!r}"
        time.sleep(0.1)


try:
    attempt("both workers answer", lambda: len(app.control.ping(timeout=2)) == 2)
    sends, again, n = {}, 0, 0
    begin = time.time()
    while time.time() - begin < float(os.environ["FOR"]):
        while True:
            sends[n] = sends.get(n, 0) + 1
            try:
                add.apply_async((n, 4), retry=False)
                break
            except Exception:
                if not HURT:
                    raise
                again += 1
                time.sleep(0.01)
        n += 1
        time.sleep(0.002)
    begin = time.time()
    while len(work()[0]) < n and time.time() - begin < 60:
        time.sleep(0.1)
    attempt("a result comes", lambda: add.delay(-4, 4).get(timeout=5) == 0)
    attempt("both workers answer", lambda: len(app.control.ping(timeout=2)) == 2)
    all, marked = work()
    text = "".join(open(log).read() for log in logs)
    broken = len(re.findall("Connection to broker lost|Cannot connect", text))
    lost = n - sum(x in all for x in range(n))
    twice = {x: k for x, k in all.items() if x >= 0 and k > sends[x]}
    assert not twice, f"worked on more often than sent, without a mark: {twice}"
    assert lost <= broken + ended, f"of {n} tasks {lost} are lost; {broken} connections broke, {ended} workers ended"
    assert HURT or not broken and not ended, f"{broken} connections broke, {ended} workers ended"
    print(
        f"{n} tasks, {lost} lost with {broken} connections and {ended} workers that ended, "
        f"{marked} delivered again; {again} sent again"
    )
except BaseException:
    for log in logs:
        print(open(log).read()[-3000:])
    raise
finally:
    over = True
    for worker in workers:
        worker.terminate()
    for keeper in keepers:
        keeper.join(20)
    for worker in workers:
        worker.kill()
