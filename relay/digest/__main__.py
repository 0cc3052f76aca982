"""`python -m relay.digest`: the digester process. It runs until its standard input ends."""

import gc
import os
import signal
import threading

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
os.umask(0o077)
# Imports leave no garbage, and with batches of rows the collector ran all the time.
gc.set_threshold(20_000)
django.setup()

from relay.digest.process import run_digester  # noqa: E402

gc.freeze()  # what was imported is never garbage
# Clients that wait for an answer come first. On a busy processor this process still gets a quarter of it.
os.nice(5)
ended = threading.Event()


def wait_for_parent() -> None:
    """Nothing is written to the input: its end is the end of the parent."""
    while os.read(0, 1024):
        pass
    ended.set()


# The server's process group gets the signal at once; the digester follows its parent, which still writes calls.
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, lambda *_: ended.set())
threading.Thread(target=wait_for_parent, daemon=True).start()
run_digester(ended)
