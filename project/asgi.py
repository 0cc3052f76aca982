"""The ASGI application: splits requests by protocol and path before Django sees them, and starts the background work.

Django's request handling alone would cost more CPU than forwarding a call of `/v1` or `/v1beta`.
"""

import gc
import os
from typing import cast

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
os.umask(0o077)  # the database and other files are readable for this user only
# Imports leave next to no garbage. `lifecycle` sets other limits when the server runs.
gc.set_threshold(50_000)
django_application = get_asgi_application()

# Only now: these import models, which need the app registry.
from channels.routing import ProtocolTypeRouter  # noqa: E402

from project.background import lifecycle  # noqa: E402
from project.server import uvicorn  # noqa: E402
from project.server.bodies import limit_bodies  # noqa: E402
from project.server.flow_control import paced, paced_socket  # noqa: E402
from project.server.limits import limit_frames  # noqa: E402
from project.server.readiness import start_problem  # noqa: E402
from relay.gateway import application as gateway  # noqa: E402
from relay.mcp_server import application as mcp  # noqa: E402
from relay.routing import sockets  # noqa: E402
from relay.runtime.asgi import Application, Receive, Scope, Send  # noqa: E402


async def answer_http(scope: Scope, receive: Receive, send: Send) -> None:
    if gateway.serves(scope["path"]):
        await gateway.application(scope, receive, send)
    elif mcp.serves(scope["path"]):
        await mcp.application(scope, receive, send)
    else:
        await django_application(scope, receive, send)


async def follow_lifespan(scope: Scope, receive: Receive, send: Send) -> None:
    uvicorn.set_deadlines(receive)
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup" and (problem := start_problem(receive)):
            await lifecycle.drain()
            await send({"type": "lifespan.startup.failed", "message": problem})
            return
        if message["type"] == "lifespan.shutdown":
            await lifecycle.drain()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


http = limit_bodies(answer_http)
# channels types every message of ASGI, the servers do not.
protocols = cast(Application, ProtocolTypeRouter({"websocket": sockets, "lifespan": follow_lifespan}))
lifecycle.prepare_daphne()


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    lifecycle.ensure_started()
    if scope["type"] == "http":
        # Before anything else, because it needs the `receive` and `send` of the server itself.
        await http(scope, receive, paced(send))
        return
    if scope["type"] == "websocket" and gateway.serves(scope["path"]):
        await gateway.refuse_socket(scope, receive, send)
        return
    if scope["type"] == "websocket":
        send = paced_socket(send)
        receive = limit_frames(receive, send)
    await protocols(scope, receive, send)
