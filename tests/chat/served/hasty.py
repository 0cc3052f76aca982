"""The whole application with little patience: whoever is silent for a few seconds is lost."""

from dataclasses import replace
from datetime import timedelta

from project import asgi, background

# isort: split
# Only now: these need the applications to be set up.
from history import exchanges
from relay import lost_runs

lost_runs.LIVES_FOR = exchanges.LIVES_FOR = timedelta(seconds=4)
background.LEASE_SECONDS = 1.5
background.JOBS[:] = [replace(job, every=0.5) if job.name.startswith("sweep") else job for job in background.JOBS]

application = asgi.application
