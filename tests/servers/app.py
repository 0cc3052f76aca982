"""The whole application, with the tools of the folder beside this file among its own."""

from pathlib import Path

from project import asgi
from relay.tools import built_in

built_in.__path__.append(str(Path(__file__).parent / "tools"))

application = asgi.application
