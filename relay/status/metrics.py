"""`/metrics`: Prometheus metrics in the text format. `PARLEY_METRICS` sets who may read them; others get a 404.

Every process returns the same values: database values are for the installation, journal values for this machine, and
process values have one label per process of this machine, so that sums and rates are right whichever process answers.
Without a database the other metrics are still returned, with `parley_database_up` 0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from history.access import keys
from history.access.key_cache import ApiKeyError, bearer_secret
from relay.digest.state import read_state
from relay.gateway.process_stats import ProcessStats, all_stats
from relay.models import Run

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
UNTOLD = "that could not be recorded and are not yet reported in the journal."
Sample = tuple[dict[str, str], float]


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: str
    help: str
    samples: list[Sample] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.samples:
            label_text = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            yield f"{self.name}{{{label_text}}} {value:.15g}" if label_text else f"{self.name} {value:.15g}"


@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    authorization = request.headers.get("Authorization", "")
    if settings.PARLEY_METRICS == "admin" and authorization:
        if refusal := _refusal(authorization):
            return HttpResponse(refusal, status=401, headers={"WWW-Authenticate": 'Bearer realm="Parley"'})
    elif settings.PARLEY_METRICS != "open" and not (settings.PARLEY_METRICS == "admin" and request.user.is_staff):
        raise Http404
    lines = (line for metric in (*_of_processes(all_stats()), *_of_database()) for line in metric.lines())
    return HttpResponse("\n".join(lines) + "\n", content_type=CONTENT_TYPE)


def _refusal(authorization: str) -> str:
    """Error text for a key without access: the operator reads it in the log of the scraper."""
    try:
        keys.authenticate(bearer_secret(authorization), scope="admin")
    except ApiKeyError as error:
        return str(error)
    return ""


def _of_processes(found: Sequence[ProcessStats]) -> Iterator[Metric]:
    ended = [
        ({"source": source, "outcome": reason, "process": one.process}, float(count))
        for one in found
        for source, reason, count in one.ended
    ]
    yield Metric("parley_exchanges_total", "counter", "Ended model calls by outcome.", ended)
    for name, help_text, attribute in (
        ("parley_relay_calls", "Running relayed calls.", "calls"),
        ("parley_sockets", "Open websockets.", "sockets"),
        ("parley_resident_bytes", "Resident memory.", "resident"),
        ("parley_journal_untold_calls", f"Calls {UNTOLD}", "unreported_calls"),
        ("parley_journal_untold_bytes", f"Bytes {UNTOLD}", "unreported_bytes"),
    ):
        samples = [({"process": one.process}, float(getattr(one, attribute))) for one in found]
        yield Metric(name, "gauge", help_text, samples)


def _of_database() -> Iterator[Metric]:
    try:
        state, runs = read_state(), Run.objects.filter(ended_at=None).count()
    except (DatabaseError, InterfaceError):
        yield Metric("parley_database_up", "gauge", "Whether the database answers.", [({}, 0)])
        return
    yield Metric("parley_database_up", "gauge", "Whether the database answers.", [({}, 1)])
    yield Metric("parley_runs", "gauge", "Running chat answers.", [({}, runs)])
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
        yield Metric(name, kind, help_text, [({}, float(value))])


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
