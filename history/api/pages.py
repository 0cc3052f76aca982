"""`/api/schema` for programs, `/api/docs` for people: the same schema, which holds no secret."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from rest_framework.request import Request
from rest_framework.response import Response

from history.api.authentication import CookieAuthentication
from history.api.etags import tagged
from history.api.reference import operations
from history.api.schema import schema
from history.api.views import ApiView


class Public(ApiView):
    """For whoever asks, and not part of the schema itself."""

    schema = None
    authentication_classes: Sequence[Any] = ()
    permission_classes = ()
    throttle_classes = ()


class Schema(Public):
    def get(self, request: Request) -> Response:
        return tagged(request, schema())


class Docs(Public):
    """Whoever is signed in finds the way back to the other pages."""

    authentication_classes = (CookieAuthentication,)

    def get(self, request: Request) -> HttpResponse:
        context = {"operations": operations(schema()), "info": schema()["info"]}
        return render(request._request, "history/api.html", context)
