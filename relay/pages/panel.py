"""Details panel of a session: context gauge, timing of the last turns, system instruction, task plan, agent tree.

Everything is read from the newest rows by index, so that a session of ten thousand entries costs what a short one does.
The agent tree consists of sessions: each names the call of the session that opened it. Relayed and imported sessions
have such trees, too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from history.access.permissions import Purpose, sessions_for
from history.access.reasons import mark_readings_seen, who_read
from history.context.tokens import calibrate
from history.db.prepared import prepared
from history.entries import ModelInput, ModelOutput, SystemInstructionSet
from history.http import HtmxRequest, user_action, user_page
from history.models import Exchange, Message, Session, ToolCall
from history.pages.session import session_or_404
from history.record import recorder, selectors
from history.record.exchanges import end_of_work
from history.transcripts.previews import entries_in_brief
from history.transcripts.timeline import Span
from relay.agents.requests import read_calibration
from relay.errors import NoSuchModel
from relay.models import Agent, Run
from relay.pages.chat.choices import pickers_for
from relay.pages.sidebar.views import own_session
from relay.providers.registry import router
from relay.tools.built_in.plans import TaskPlan, read_plan

TURNS = 3
MOST_LANES = 12
NARROWEST = 1.5
RECENT = 400  # older entries are not searched
FURTHEST = 12
MOST = 200
SHOWN = ("id", "owner_id", "title", "agent", "client", "parent_id", "created_at", "message_count", "cost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """Tokens of the last call in the model's window. `estimate` is our own estimate."""

    used: int
    is_counted: bool = False
    estimate: int = 0
    window: int = 0
    is_reply_kept: bool = True  # false if the key records requests only

    @property
    def percent(self) -> int:
        return min(100, round(100 * self.used / self.window)) if self.window else 0


class TurnTiming(NamedTuple):
    began: datetime
    seconds: float
    lanes: list[Span]


def panel_of(session: Session, *, reader: Any = None) -> dict[str, Any]:
    """`readings` are filled only for the owner."""
    seq, instruction = _instruction(session)
    return {
        "gauge": _gauge(session),
        "turns": _turns(session),
        "instruction": instruction,
        "instruction_seq": seq,
        "readings": who_read(session) if reader is not None and reader.pk == session.owner_id else (),
    }


def _gauge(session: Session) -> Gauge | None:
    fields = ("input_tokens", "output_tokens", "provider", "model", "usage_source")
    answers = list(_newest(session, ModelOutput.kind).exclude(model="").only(*fields)[:5])
    # An interrupted answer may have no token count; an earlier one has.
    last = next((answer for answer in answers if answer.input_tokens), next(iter(answers), None))
    if last is None:
        return _gauge_of_call(session)
    exchange = Exchange.objects.filter(message=last).only("estimated_tokens", "model").first()
    estimate = calibrate(exchange.estimated_tokens, factor=read_calibration(exchange.model)) if exchange else 0
    counted = last.input_tokens + last.output_tokens
    is_counted = last.usage_source == "provider" and counted > 0
    return Gauge(used=counted or estimate, is_counted=is_counted, estimate=estimate, window=_window(last))


def _gauge_of_call(session: Session) -> Gauge | None:
    """Without recorded answers, use the newest call that ended well."""
    fields = ("provider", "model", "usage", "end_reason", "message")
    calls = Exchange.objects.filter(session=session).order_by("-started_at", "-id").only(*fields)[:5]
    last = next((call for call in calls if call.end_reason == "done"), None)
    if last is None:
        return None
    counted = (last.usage.get("input_tokens") or 0) + (last.usage.get("output_tokens") or 0)
    is_counted = last.usage.get("source") == "provider" and counted > 0
    return Gauge(used=counted, is_counted=is_counted, window=_window(last), is_reply_kept=last.message_id is not None)


def _newest(session: Session, kind: str) -> QuerySet[Message]:
    recent = Message.objects.on_path(session).filter(seq__gt=session.head - RECENT)
    return recent.filter(kind=kind).order_by("-seq")


def _window(answer: Message | Exchange) -> int:
    """0 if the window is unknown or the model is not offered any more."""
    try:
        model = router().route(f"{answer.provider}/{answer.model}").model
    except NoSuchModel:
        return 0
    return min(model.window, model.context_tokens or model.window)


def _instruction(session: Session) -> tuple[int, SystemInstructionSet | None]:
    states = Message.objects.on_path(session).filter(is_state=True, kind=SystemInstructionSet.kind)
    message = states.order_by("-seq").first()
    entry = entries_in_brief([message])[0] if message else None
    return (message.seq, entry) if message and isinstance(entry, SystemInstructionSet) else (0, None)


def _turns(session: Session) -> list[TurnTiming]:
    """The newest turns that took any time, oldest first."""
    inputs = _newest(session, ModelInput.kind).filter(is_internal=False)
    newest = list(inputs.values_list("created_at", flat=True)[:TURNS])
    if not newest:
        return []
    turns: dict[datetime, list[Span]] = {began: [] for began in reversed(newest)}
    for span in _spans(session, since=newest[-1]):
        turns[next(began for began in newest if began <= span.began)].append(span)
    return [_turn(spans) for spans in turns.values() if spans]


def _spans(session: Session, *, since: datetime) -> Iterator[Span]:
    """Calls and tools on the current path since then."""
    calls = Exchange.objects.filter(session=session).filter(started_at__gte=since, ended_at__isnull=False)
    calls = calls.exclude(message__on_path=False)
    tools = ToolCall.objects.filter(session=session).filter(started_at__gte=since, duration__isnull=False)
    tools = tools.filter(message__on_path=True)
    models = calls.order_by("-started_at").values_list("model", "started_at", end_of_work())[: TURNS * MOST_LANES]
    used = tools.order_by("-started_at").values_list("name", "started_at", "duration")[: TURNS * MOST_LANES]
    for name, began, ended in models:
        if ended:
            yield Span(kind="model", name=name, seq=0, began=began, seconds=(ended - began).total_seconds())
    for name, began, seconds in used:
        if began and seconds is not None:
            yield Span(kind="tool", name=name, seq=0, began=began, seconds=seconds)


def _turn(spans: Sequence[Span]) -> TurnTiming:
    spans = sorted(spans, key=lambda span: span.began)[:MOST_LANES]
    began, ended = spans[0].began, max(span.ended for span in spans)
    whole = max((ended - began).total_seconds(), 0.001)
    return TurnTiming(began, whole, [span.placed(began, whole, narrowest=NARROWEST) for span in spans])


@user_page
def panel(request: HttpRequest, session_id: UUID) -> HttpResponse:
    session = session_or_404(request.user, session_id)
    context = {
        "session": session,
        "panel": panel_of(session, reader=request.user),
        "pickers": pickers_for(session),
        "may_compose": session.owner_id == request.user.pk,
        "run": Run.objects.filter(session=session.pk, ended_at=None).first(),
    }
    return render(request, "chat/_panel.html", context)


@user_action
def readings_seen(request: HtmxRequest, session_id: UUID) -> HttpResponse:
    """Remove the chip in the head after the owner has seen who read the session."""
    session = own_session(request, session_id)
    mark_readings_seen(session)
    return HttpResponse() if request.htmx else redirect(f"{session.get_absolute_url()}#who-read")


@user_action
def change_settings(request: HttpRequest, session_id: UUID) -> HttpResponse:
    """Change title and agent. An empty title or an unknown agent changes nothing."""
    session = own_session(request, session_id)
    if title := request.POST.get("title", "").strip():
        recorder.rename(session, title=title)
    agent = request.POST.get("agent", "")
    if agent != session.agent and Agent.objects.filter(name=agent).exists():
        recorder.assign(session, agent=agent)
    return redirect(session)


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One session, and those that its agent opened."""

    session: Session
    is_current: bool
    is_answering: bool
    below: "tuple[Branch, ...]" = ()

    @property
    def count(self) -> int:
        """Number of sessions below."""
        return sum(1 + branch.count for branch in self.below)

    @property
    def answering(self) -> int:
        """Number of these with a run."""
        return sum(branch.is_answering + branch.answering for branch in self.below)


def work_of(session: Session, *, reader: Any, leaf: int | None = None) -> dict[str, Any]:
    return {"plan": plan_of(session, leaf=leaf), "tree": tree_of(session, reader=reader)}


def plan_of(session: Session, *, leaf: int | None = None) -> TaskPlan | None:
    plan = read_plan(selectors.plan_at(session, leaf=leaf))
    return plan if plan.steps else None


def tree_of(session: Session, *, reader: Any) -> Branch | None:
    """The tree around this session, as far as the reader may see it. None without other sessions."""
    if session.parent_id is None and not _has_children(session.pk):
        return None
    root = _root_of(session, reader)
    children = _below(root, reader)
    if not children:
        return None
    ids = {root.pk, *(child.pk for those in children.values() for child in those)}
    return _branch(root, children, current=session.pk, working=Run.objects.sessions_running(ids))


@prepared
def _has_children(session_id: UUID) -> QuerySet[Session, UUID]:
    return Session.objects.filter(parent_id=session_id).order_by().values_list("pk", flat=True)[:1]


def _root_of(session: Session, reader: Any) -> Session:
    for _ in range(FURTHEST):
        listed = sessions_for(reader, Purpose.LIST).only(*SHOWN)
        parent = listed.filter(pk=session.parent_id).first() if session.parent_id else None
        if parent is None:
            break
        session = parent
    return session


def _below(root: Session, reader: Any) -> dict[UUID, list[Session]]:
    """Sessions opened by each session of the tree, oldest first. One query per level."""
    children: dict[UUID, list[Session]] = {}
    level, seen = [root.pk], 0
    while level and seen < MOST and len(children) < MOST:
        rows = sessions_for(reader, Purpose.LIST).only(*SHOWN).filter(parent_id__in=level).order_by("created_at", "pk")
        found = [child for child in rows[: MOST - seen] if child.pk != root.pk and child.pk not in children]
        for child in found:
            children.setdefault(child.parent_id or root.pk, []).append(child)
        level, seen = [child.pk for child in found], seen + len(found)
    return children


def _branch(session: Session, children: dict[UUID, list[Session]], *, current: UUID, working: set[UUID]) -> Branch:
    below = children.pop(session.pk, [])  # each once, even if rows name each other in a circle
    return Branch(
        session=session,
        is_current=session.pk == current,
        is_answering=session.pk in working,
        below=tuple(_branch(child, children, current=current, working=working) for child in below),
    )
