"""The sockets of the relay."""

from typing import Any, cast

from channels.routing import URLRouter
from django.urls import path, re_path

from relay.consumers.authentication import SocketAuthentication, reject
from relay.consumers.page import ChatConsumer
from relay.consumers.program import ProgramConsumer
from relay.consumers.sockets import ListConsumer

# The catch-all stays last. Typed loosely: a route of Channels leads to an ASGI application, not to a view.
routes: list[Any] = [
    path("ws/s/<uuid:session_id>/", cast(Any, ChatConsumer.as_asgi())),
    path("ws/lists/", cast(Any, ListConsumer.as_asgi())),
    path("ws/v1/", cast(Any, ProgramConsumer.as_asgi())),
    re_path(r"", cast(Any, reject)),
]
sockets = SocketAuthentication(URLRouter(routes))
