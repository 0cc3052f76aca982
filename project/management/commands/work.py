"""`manage.py work`: the background work in a process of its own. Web processes then run with PARLEY_BACKGROUND=off."""

import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand

from project.background.jobs import JOBS, LEASE_SECONDS
from project.background.scheduler import Scheduler
from project.server.readiness import check_database, check_migrations


class Command(BaseCommand):
    help = "Run the background jobs until stopped by Ctrl+C or SIGTERM."

    def handle(self, *args: Any, **options: Any) -> None:
        check_database()
        check_migrations()
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        scheduler = Scheduler(JOBS, lease_seconds=LEASE_SECONDS)
        scheduler.start()
        self.stdout.write(f"Working: {', '.join(job.name for job in scheduler.jobs)}")
        self.stdout.flush()
        # With a timeout, because a signal that the kernel gives to another thread does not wake a wait without one.
        while not ended.wait(0.5):
            pass
        scheduler.stop()
