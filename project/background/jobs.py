"""The table of background jobs: what runs, how often, and in which processes."""

from dataclasses import dataclass
from typing import Literal

LEASE_SECONDS = 30.0


@dataclass(frozen=True)
class Job:
    """A function that runs every so many seconds; it and `stop`, which ends what it started, are dotted paths.

    `at_end` runs it once more before the process ends. A job that runs once per host decides itself which process does
    it; one that runs once per installation needs a lease.
    """

    name: str
    run: str
    every: float
    once_per: Literal["process", "host", "installation"] = "process"
    at_end: bool = False
    stop: str = ""


_SWEEPER, _FORGET_LOCKS = "relay.live.lost_runs", "relay.runtime.process_locks.forget"

_STATS, _DIGEST = "relay.digest.state", "relay.digest.process"

JOBS: list[Job] = [
    Job("flush partial answers", "history.record.exchanges.flush_partials", every=0.25, at_end=True),
    Job("sweep dead exchanges", "history.record.exchanges.sweep", every=5, once_per="installation"),
    Job("look after runs", "relay.live.runs.send_heartbeats", every=1),
    Job("refresh pages without Redis", "relay.live.relayed_updates.refresh_open_sessions", every=1),
    Job("refresh lists without Redis", "relay.live.relayed_updates.refresh_session_lists", every=0.5),
    Job("look who has signed out", "relay.live.sign_outs.notify_ended_sign_ins", every=2),
    Job("end runs of dead processes", f"{_SWEEPER}.end_runs_of_dead_processes", every=5, stop=_FORGET_LOCKS),
    Job("sweep dead runs", f"{_SWEEPER}.sweep", every=5, once_per="installation"),
    Job("purge what is due", "history.retention.purge_due", every=3600, once_per="installation"),
    Job("check the counts by day", "history.record.daily_counts.check", every=3600, once_per="installation"),
    Job("run imports", "history.importing.jobs.work", every=1),
    Job("tidy imports", "history.importing.jobs.tidy", every=3600),
    Job("count what keys use", "relay.usage.counters.sync", every=0.4, at_end=True),
    Job("end calls of revoked keys", "relay.gateway.call.cancellation.end_revoked", every=0.5),
    Job("note issued answers", "relay.gateway.references.ownership.flush_issued_ids", every=1, at_end=True),
    Job("note arrived credentials", "relay.gateway.arrivals.flush_arrivals", every=1, at_end=True),
    Job("tidy counts of keys", "relay.usage.tables.delete_expired", every=300, once_per="installation"),
    Job("say how this process fares", f"{_STATS}.write_stats", every=2, stop=f"{_STATS}.stop_stats"),
    Job("digest the relay's journal", f"{_DIGEST}.keep_running", every=0.1, once_per="host", stop=f"{_DIGEST}.stop"),
    Job("list models", "relay.providers.registry.refresh", every=300),
]
