"""A request of somebody who is signed in, for the type checker."""

from __future__ import annotations

from django.http import HttpRequest

from project.accounts.models import User


class SignedInRequest(HttpRequest):
    """A request behind `login_required` or `staff_only`."""

    user: User
