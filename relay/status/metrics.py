"""`/metrics`: Prometheus metrics in the text format.

Every process returns the same values, so that sums and rates are right whichever process answers: docs/metrics.md says
to what each applies.
"""

from collections.abc import Iterable, Iterator, Sequence

from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from history.access import keys
from history.access.key_cache import ApiKeyError, bearer_secret
from relay.digest.state import ProcessStats, all_stats, read_state
from relay.models import Run

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
UNTOLD = "that could not be recorded and are not yet reported in the journal."
Sample = tuple[dict[str, str], float]


@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    authorization = request.headers.get("Authorization", "")
    if settings.PARLEY_METRICS == "admin" and authorization:
        if refusal := _refusal(authorization):
            return HttpResponse(refusal, status=401, headers={"WWW-Authenticate": 'Bearer realm="Parley"'})
    elif settings.PARLEY_METRICS != "open" and not (settings.PARLEY_METRICS == "admin" and request.user.is_staff):
        raise Http404
    lines = [*_of_processes(all_stats()), *_of_database()]
    return HttpResponse("\n".join(lines) + "\n", content_type=CONTENT_TYPE)


def _refusal(authorization: str) -> str:
    """Error text for a key without access: the operator reads it in the log of the scraper."""
    try:
        keys.authenticate(bearer_secret(authorization), scope="admin")
    except ApiKeyError as error:
        return str(error)
    return ""


def _metric(name: str, kind: str, help_text: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {name} {help_text}"
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        label_text = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{name}{{{label_text}}} {value:.15g}" if label_text else f"{name} {value:.15g}"


def _of_processes(found: Sequence[ProcessStats]) -> Iterator[str]:
    ended = [
        ({"source": source, "outcome": reason, "process": one.process}, float(count))
        for one in found
        for source, reason, count in one.ended
    ]
    yield from _metric("parley_exchanges_total", "counter", "Ended model calls by outcome.", ended)
    for name, help_text, attribute in (
        ("parley_relay_calls", "Running relayed calls.", "calls"),
        ("parley_sockets", "Open websockets.", "sockets"),
        ("parley_resident_bytes", "Resident memory.", "resident"),
        ("parley_journal_untold_calls", f"Calls {UNTOLD}", "unreported_calls"),
        ("parley_journal_untold_bytes", f"Bytes {UNTOLD}", "unreported_bytes"),
    ):
        samples = [({"process": one.process}, float(getattr(one, attribute))) for one in found]
        yield from _metric(name, "gauge", help_text, samples)


def _of_database() -> Iterator[str]:
    try:
        state, runs = read_state(), Run.objects.filter(ended_at=None).count()
    except (DatabaseError, InterfaceError):
        yield from _metric("parley_database_up", "gauge", "Whether the database answers.", [({}, 0)])
        return
    yield from _metric("parley_database_up", "gauge", "Whether the database answers.", [({}, 1)])
    yield from _metric("parley_runs", "gauge", "Running chat answers.", [({}, runs)])
    for name, kind, help_text, value in (
        (
            "parley_journal_waiting_bytes",
            "gauge",
            "Bytes of the relay's journal that are not digested yet.",
            state.waiting,
        ),
        ("parley_journal_behind_seconds", "gauge", "Age of the oldest of these bytes in seconds.", state.behind),
        ("parley_journal_lost_calls_total", "counter", "Calls that could not be recorded.", state.stored_calls),
        ("parley_journal_lost_bytes_total", "counter", "Bytes that could not be recorded.", state.stored_bytes),
    ):
        yield from _metric(name, kind, help_text, [({}, float(value))])


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
