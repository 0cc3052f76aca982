"""The table of background jobs: what runs, how often, and in which processes."""

from dataclasses import dataclass
from typing import Literal

LEASE_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Job:
    """A function that runs every so many seconds.

    `run` and `stop` are dotted paths, because the apps do not import this one. `at_end` runs the job once more before
    the process ends, and `stop` ends what the job started. A job that runs once per host decides itself which process
    does it; one that runs once per installation needs a lease.
    """

    name: str
    run: str
    every: float
    once_per: Literal["process", "host", "installation"]
    at_end: bool = False
    stop: str = ""


JOBS: list[Job] = [
    Job(
        name="flush partial answers",
        run="history.record.exchanges.flush_partials",
        every=0.25,
        once_per="process",
        at_end=True,
    ),
    Job(name="sweep dead exchanges", run="history.record.exchanges.sweep", every=5, once_per="installation"),
    Job(name="look after runs", run="relay.live.runs.send_heartbeats", every=1, once_per="process"),
    Job(
        name="refresh pages without Redis",
        run="relay.live.relayed_updates.refresh_open_sessions",
        every=1,
        once_per="process",
    ),
    Job(
        name="refresh lists without Redis",
        run="relay.live.relayed_updates.refresh_session_lists",
        every=0.5,
        once_per="process",
    ),
    Job(name="look who has signed out", run="relay.live.sign_outs.notify_ended_sign_ins", every=2, once_per="process"),
    Job(
        name="end runs of dead processes",
        run="relay.live.sweeper.end_runs_of_dead_processes",
        every=5,
        once_per="process",
        stop="relay.runtime.process_locks.forget",
    ),
    Job(name="sweep dead runs", run="relay.live.sweeper.sweep", every=5, once_per="installation"),
    Job(name="purge what is due", run="history.retention.purge_due", every=3600, once_per="installation"),
    Job(name="check the counts by day", run="history.record.daily_counts.check", every=3600, once_per="installation"),
    Job(name="run imports", run="history.importing.scheduler.work", every=1, once_per="process"),
    Job(name="count what keys use", run="relay.usage.counters.sync", every=0.4, once_per="process", at_end=True),
    Job(
        name="end calls of revoked keys",
        run="relay.gateway.call.cancellation.end_revoked",
        every=0.5,
        once_per="process",
    ),
    Job(
        name="note issued answers",
        run="relay.gateway.references.ownership.write_issued",
        every=1,
        once_per="process",
        at_end=True,
    ),
    Job(name="tidy counts of keys", run="relay.usage.tables.delete_expired", every=300, once_per="installation"),
    Job(
        name="say how this process fares",
        run="relay.gateway.process_stats.write",
        every=2,
        once_per="process",
        stop="relay.gateway.process_stats.stop",
    ),
    Job(
        name="digest the relay's journal",
        run="relay.digest.process.keep_running",
        every=0.1,
        once_per="host",
        stop="relay.digest.process.stop",
    ),
    Job(name="list models", run="relay.providers.registry.refresh", every=300, once_per="process"),
]
