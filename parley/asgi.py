"""The ASGI application for servers that start the wheel: `uvicorn parley.asgi:application`."""

from project.asgi import application

__all__ = ["application"]
