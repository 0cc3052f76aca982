#!/usr/bin/env python
"""Parley's command line: `manage.py help` lists what it can do."""

import gc
import os
import sys

if __name__ == "__main__":
    # Imports leave next to no garbage. With Python's threshold of 700, to look for it was a sixth of the start.
    gc.set_threshold(50_000)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
