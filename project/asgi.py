"""What a server runs: one application, split by protocol before Django sees anything.

`/v1` and `/v1beta` go to the relay's own bare ASGI application, which never passes through Django's handler: that alone
would cost more than carrying a call. `/mcp` goes to the MCP server. Whatever comes first, a request, a socket or
lifespan, also starts the background work.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
from typing import Any

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
os.umask(0o077)  # what we write, the database first of all, is nobody else's to read
# Threads of ours ask the database beside the event loop. Where one of them computes, the loop waits at most so long for
# its turn; with Python's own five milliseconds a stream would be seen to stutter.
sys.setswitchinterval(0.0005)
_modules: dict[str, Any] = sys.modules
# The REST framework would load the fields of PostgreSQL, which no model here has, and with them its driver: 7 MB of a
# server on SQLite. It does without where there are none.
_modules.setdefault("django.contrib.postgres.fields", None)
django_application = get_asgi_application()
# It would load `requests` wherever that is installed, for a client that tests use: 5 MB.
_modules.setdefault("requests", None)
import rest_framework.compat  # noqa: E402, F401

if _modules["requests"] is None:
    del _modules["requests"]

# Only now: these import models, which need the applications to be set up.
from channels.routing import ProtocolTypeRouter  # noqa: E402

from project.background import jobs  # noqa: E402
from project.server import uvicorn as under_uvicorn  # noqa: E402
from project.server.bodies import limit_bodies  # noqa: E402
from project.server.flow_control import paced, paced_socket  # noqa: E402
from project.server.frames import limit_frames  # noqa: E402
from relay.gateway import application as gateway  # noqa: E402
from relay.mcp_server import application as mcp  # noqa: E402
from relay.routing import sockets  # noqa: E402


async def answer_http(scope: Any, receive: Any, send: Any) -> None:
    if gateway.serves(scope["path"]):
        await gateway.application(scope, receive, send)
    elif mcp.serves(scope["path"]):
        await mcp.application(scope, receive, send)
    else:
        await django_application(scope, receive, send)


async def live(scope: Any, receive: Any, send: Any) -> None:
    """Lifespan: the server's own word that it starts and ends."""
    under_uvicorn.set_deadlines(receive)
    while True:
        message = await receive()
        if message["type"] == "lifespan.shutdown":
            await jobs.drain()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def give_back_memory() -> None:
    """What loading has left free goes back to the system, and threads, which take turns anyway, share one heap: 4 MB.

    Large blocks are always taken from the system and given back to it. Otherwise glibc takes them from its heap once
    the first was freed (up to 32 MB each), where small blocks between them keep them: after an answer of 30 MB, 200 MB
    were free and not given back. So it is with glibc; where there is another library, it is left to that.
    """
    most_heaps, mmap_threshold = -8, -3
    with contextlib.suppress(AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(most_heaps, 1)
        library.mallopt(mmap_threshold, 512 * 1024)
        library.malloc_trim(0)


# What is loaded by now stays, and is not looked through again for cycles that nobody uses any more; nor is what a few
# calls are busy with just now, each time they make another hundred objects.
gc.collect()
gc.freeze()
gc.set_threshold(3_000, 5, 5)
give_back_memory()

jobs.start_with_daphne()
if "daphne.cli" in sys.modules:
    # The `daphne` command imports us before it makes its server: let it make one that keeps the limits.
    from daphne.cli import CommandLineInterface

    from project.server.daphne import Server

    CommandLineInterface.server_class = Server
http = limit_bodies(answer_http)
protocols = ProtocolTypeRouter({"websocket": sockets, "lifespan": live})


async def application(scope: Any, receive: Any, send: Any) -> None:
    jobs.ensure_started()
    if scope["type"] == "http":
        # Before anything else, because it has to see what the server itself gave us.
        await http(scope, receive, paced(send))
        return
    if scope["type"] == "websocket":
        send = paced_socket(send)
        receive = limit_frames(receive, send)
    await protocols(scope, receive, send)
