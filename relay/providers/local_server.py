"""The demo model's own process: `python -m relay.providers.local_server WEIGHTS`, started by `local`.

It prints its address and its key as JSON; the system chooses the port. It ends with its parent, whose end closes stdin.
It uses no Django and no settings.
"""

import json
import os
import secrets
import signal
import sys
import threading
from contextlib import suppress

# A name for `/v1/models`; the slots share the window among them.
MODEL_NAME = "smollm2-135m-instruct"
WINDOW = 4096
SLOTS = 2


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the parent process; this one follows
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(AttributeError, OSError):
        os.nice(10)  # pages and answers of real models go first
    try:
        announced = _serve(sys.argv[1])
    except Exception as error:  # noqa: BLE001 - the parent reports it
        announced = {"problem": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(announced) + "\n")
    sys.stdout.flush()
    if "problem" not in announced:
        threading.Event().wait()


def _serve(weights: str) -> dict[str, str]:
    from xllamacpp import CommonParams, Server

    key = secrets.token_urlsafe(24)
    params = CommonParams()
    params.model.path = weights
    params.model_alias = {MODEL_NAME}
    params.n_parallel, params.n_ctx = SLOTS, WINDOW * SLOTS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2 if (os.cpu_count() or 1) >= 4 else 1
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.api_keys = [key]  # without a key any page in a browser on this machine could talk to it
    params.sampling.penalty_repeat = 1.1  # so small a model easily says the same again and again
    params.ui = False
    params.cache_ram_mib = 0
    # It lives as long as this is referred to.
    _serve.server = Server(params)  # type: ignore[attr-defined]
    return {"address": _serve.server.listening_address, "key": key}  # type: ignore[attr-defined]


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
