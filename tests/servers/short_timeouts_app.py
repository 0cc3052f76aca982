"""The whole application with short timeouts: a client that is silent for seconds is lost."""

from dataclasses import replace
from datetime import timedelta

from project import asgi
from project.background import jobs

# isort: split
# Only now: these need the applications to be set up.
from django.conf import settings

from history.record import exchanges
from relay.live import lost_runs

lost_runs.RUN_TIMEOUT = exchanges.LIVES_FOR = timedelta(seconds=4)
jobs.LEASE_SECONDS = 1.5
jobs.JOBS[:] = [replace(job, every=0.5) if job.name.startswith("sweep") else job for job in jobs.JOBS]

if settings.REDIS_URL:
    from relay.runtime import redis_layer

    redis_layer.ANSWER_SECONDS, redis_layer.RETRY_SECONDS = 0.5, 0.1
    redis_layer.BEAT_SECONDS, redis_layer.SILENCE_SECONDS = 0.2, 1.0

application = asgi.application
