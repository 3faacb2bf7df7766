"""rq's enqueue: jobs, one that depends on another one, one that is scheduled, and their cancellation."""

import os
from datetime import timedelta

from redis import Redis
from rq import Queue

redis = Redis.from_url("redis://" + os.environ["ADDRS"])
q = Queue("programs", connection=redis)
q.empty()
job = q.enqueue("math.sqrt", 4)
assert job.get_status() == "queued" and q.count == 1, job.get_status()
after = q.enqueue("math.sqrt", 9, depends_on=job)
assert after.get_status() == "deferred", after.get_status()
later = q.enqueue_in(timedelta(hours=1), "math.sqrt", 16)
assert later.id in q.scheduled_job_registry
many = q.enqueue_many([Queue.prepare_data("math.sqrt", (n,), job_id=f"many-{n}") for n in range(3)])
assert q.count == 4 and q.fetch_job("many-2").args == (2,)
job.cancel(enqueue_dependents=True)
assert after.get_status(refresh=True) == "queued" and job.get_status(refresh=True) == "canceled"
for job in many + [after, later, job]:
    job.delete()
assert q.count == 0
q.delete()
