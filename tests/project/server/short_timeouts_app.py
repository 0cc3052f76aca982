"""The whole application with short time limits, for tests of slow clients under real servers."""

from project.server import limits

limits.HEADER_SECONDS = limits.BODY_SECONDS = 1.5
limits.LINGER_SECONDS = 1.0

from project.asgi import application  # noqa: E402, F401
