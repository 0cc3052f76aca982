"""`python -m relay.digest`: turns the relay's journal into history until its standard input ends."""

import gc
import os
import signal
import threading

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
os.umask(0o077)
django.setup()

from relay.digest.process import run  # noqa: E402

# What is there now stays, and need not be looked through for garbage; with batches of rows that was done all the time.
gc.freeze()
gc.set_threshold(20_000)
# Whoever waits for an answer comes first. Where others want all of a processor, we still get a quarter of it.
os.nice(5)
ended = threading.Event()


def wait_for_parent() -> None:
    """Nobody writes to us: the end of the input is the end of the parent."""
    while os.read(0, 1024):
        pass
    ended.set()


# The server's own process group is told to end at once; we follow our parent, who has something left to write.
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, lambda *_: ended.set())
threading.Thread(target=wait_for_parent, daemon=True).start()
run(ended)
