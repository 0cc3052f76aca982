"""`manage.py run`: the same as `serve`, under the name that `make run` and `parley run` have."""

from project.management.commands.serve import Command

__all__ = ["Command"]
