"""The staff's page of providers: what is configured, what to set, and a button that makes one small call."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST, require_safe

from history.http.htmx import HtmxRequest
from history.pages.staff_only import staff_only
from relay.errors import NoSuchModel, ProviderError
from relay.providers.advice import reason_of, what_happened, what_to_do
from relay.providers.base import Route
from relay.providers.checking import Checked, check
from relay.providers.registry import ProviderStatus, router


@dataclass(frozen=True, slots=True)
class Told:
    """An error in words; `reason` is the provider's own."""

    what: str
    todo: str
    reason: str


@dataclass(frozen=True, slots=True)
class Item:
    """One provider as the page shows it."""

    standing: ProviderStatus
    checked: Checked | None = None

    @property
    def check_error(self) -> Told | None:
        return self._told(self.checked.error) if self.checked else None

    @property
    def trouble(self) -> Told | None:
        """What went wrong last."""
        return self._told(self.standing.trouble.error) if self.standing.trouble else None

    @property
    def list_error(self) -> Told | None:
        return self._told(self.standing.list_error)

    def _told(self, error: ProviderError | None) -> Told | None:
        if error is None:
            return None
        todo = what_to_do(error, variable=self.standing.key_variable)
        return Told(what_happened(error), todo, reason_of(error)[:500])


@staff_only
@require_safe
def providers(request: HttpRequest) -> HttpResponse:
    return _page(request)


@staff_only
@require_POST
def try_provider(request: HtmxRequest, name: str) -> HttpResponse:
    """What became of the call, by itself where htmx asks for it, else on the page."""
    checked = check(_route(name, request.POST.get("model", "")))
    if not request.htmx:
        return _page(request, name=name, checked=checked)
    [standing] = [standing for standing in router().providers() if standing.name == name]
    return render(request, "relay/_tried.html", {"item": Item(standing, checked)})


def _route(name: str, model: str) -> Route:
    provider = router().provider(name)
    if provider is None or not (model or provider.models):
        raise Http404
    try:
        return router().route(f"{name}/{model or provider.models[0].name}")
    except NoSuchModel as error:
        raise Http404 from error


def _page(request: HttpRequest, *, name: str = "", checked: Checked | None = None) -> HttpResponse:
    items = [Item(standing, checked if standing.name == name else None) for standing in router().providers()]
    return render(request, "relay/providers.html", {"items": items, "default": _default()})


def _default() -> Route | None:
    try:
        return router().route()
    except NoSuchModel:
        return None
