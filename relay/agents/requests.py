"""Requests to models: context and options of a call, rendered from the history and recorded first."""

from dataclasses import dataclass, replace
from uuid import UUID

from django.conf import settings

from history.context.rendering import render_context
from history.context.tokens import estimate_context
from history.context.values import RENDERER_VERSION, Context, ContextOptions, RemarkCode
from history.dialects import CallOptions, Switches
from history.entries import JsonObject, Media
from history.models import Blob, Exchange, Session, TokenCalibration
from history.record import exchanges, selectors
from relay.agents.environment import environment_options
from relay.models import Agent
from relay.models.agents import RoleName
from relay.providers.base import Model, without_unsupported_images
from relay.providers.http import Route
from relay.tools.built_in import plans
from relay.usage import allowances
from relay.usage.allowances import Limits

# Tokens of a model whose window is not known, and the part of any window that is left for the answer.
UNKNOWN_WINDOW = 16_000
ANSWER_TOKENS = 4_096
# An estimate may be off by some percent even after calibration.
MARGIN = 0.95
OVERFULL = frozenset({RemarkCode.LIMIT_TOKENS, RemarkCode.OVER_TOKENS})


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedCall:
    """A call before it is recorded: first it reserves its share of the user's `limits`.

    `is_full`: the context is so long that older turns should be summarised first.
    """

    session: Session
    leaf: int
    role: str
    context: Context
    options: CallOptions
    route: Route
    limits: Limits
    tokens: int
    inputs: JsonObject
    metadata: JsonObject
    is_full: bool = False


def render_call(
    session_id: UUID, *, leaf: int, agent: Agent, role: RoleName, route: Route, client: JsonObject
) -> RenderedCall:
    """Read the history up to `leaf` and render it for this model."""
    session = Session.objects.select_related("owner", "api_key").get(pk=session_id)
    limits = allowances.check_budget(session.owner)
    around, sources = environment_options(session.owner, session_id, agent)
    shown = ContextOptions(
        max_turns=agent.max_turns or None,
        max_tokens=context_limit(route.model, agent.max_answer_tokens),
        calibration=read_calibration(route.model.name),
        **around,
    )
    taken = selectors.snapshot(session, leaf=leaf, options=shown)
    if role != "executor" or not route.model.takes_tools:
        taken = replace(taken, tools=())
    elif plans.TOOL in agent.tools:
        shown = replace(shown, live_screen=plans.on_screen(taken.plan, shown.live_screen))
    context = without_unsupported_images(render_context(taken, shown), route.model)
    limit = compression_limit(route.model, agent)
    options = CallOptions(
        model=route.model.name,
        provider=route.provider.name,
        max_tokens=agent.max_answer_tokens or None,
        temperature=agent.temperature,
        reasoning_effort=agent.reasoning_effort,
        stream=True,
        media=_media_in(context).__getitem__,
        switches=route.model.switches or Switches(),
    )
    repairs = sorted({remark.code.value for remark in context.report.remarks})
    inputs = {"context": shown.to_json(), "role": role, "tools": [tool.name for tool in context.tools], **sources}
    if not route.model.takes_images:
        inputs["pictures"] = "named"
    return RenderedCall(
        session=session,
        leaf=leaf,
        role=role,
        context=context,
        options=options,
        route=route,
        limits=limits,
        tokens=estimate_context(context.entries, system=context.system, tools=context.tools),
        inputs=inputs,
        metadata={**client, "repairs": repairs} if repairs else client,
        is_full=bool(limit) and (context.tokens > limit or not OVERFULL.isdisjoint(context.report.codes)),
    )


def record_call(rendered: RenderedCall, agent: str) -> Exchange:
    route, session = rendered.route, rendered.session
    return exchanges.open_exchange(
        session,
        owner=session.owner,
        after=rendered.leaf,
        inputs=rendered.inputs,
        agent=agent,
        provider=route.provider.name,
        model=route.model.name,
        dialect=route.provider.dialect,
        renderer_version=RENDERER_VERSION,
        estimated_tokens=rendered.tokens,
        metadata=dict(rendered.metadata),
    )


def context_limit(model: Model, answer_tokens: int | None) -> int:
    """The most tokens of a context, so that an answer of so many still fits after it."""
    if model.context_tokens:
        return model.context_tokens
    window = model.window or UNKNOWN_WINDOW
    answer = min(answer_tokens or ANSWER_TOKENS, window // 4)
    return max(256, int((window - answer) * MARGIN))


def compression_limit(model: Model, agent: Agent) -> int:
    """Tokens to send before older turns are summarised. 0 means that they are left out instead."""
    if not model.can_summarise:
        return 0
    share = agent.compress_at or settings.PARLEY_COMPRESS_AT
    return min(int((model.window or UNKNOWN_WINDOW) * share), context_limit(model, agent.max_answer_tokens))


def read_calibration(model: str) -> float:
    known = TokenCalibration.objects.filter(model=model).values_list("factor", flat=True).first()
    return known if known and known > 0 else 1.0


def _media_in(context: Context) -> dict[str, bytes]:
    """The bytes of every attachment in it: dialects have no database."""
    parts = [part for entry in context.entries for part in entry.parts]
    parts += [part for entry in context.entries for result in entry.results or () for part in result.parts]
    names = {part.sha256 for part in parts if isinstance(part, Media) and part.sha256}
    found = Blob.objects.filter(pk__in=names).values_list("sha256", "data") if names else ()
    return {name: bytes(data) for name, data in found}
