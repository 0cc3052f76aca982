"""API keys of a user (`/keys/`): create, change, limit and revoke them, delete what they recorded.

The secret of a key is shown once, in the response that creates it. The owner sets what is recorded. Staff with
`history.change_apikey` set limits for the keys of other users, but see none of their sessions.
"""

from datetime import timedelta
from typing import Any
from uuid import uuid4

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.text import format_lazy
from django.utils.translation import gettext, gettext_lazy as _, ngettext
from django.views.decorators.debug import sensitive_variables

from history.access import keys
from history.clients import EXAMPLE_CLIENT
from history.clients.setups import SETUPS
from history.dialects import DIALECTS
from history.http import user_action, user_form
from history.models import ApiKey
from history.record.selectors import sessions_owned_by
from history.sessions import actions
from relay.models import KeyArrival, PlanLimits
from relay.providers.registry import router
from relay.usage.allowances import LIMITS, budget_of, load_key_usage

MOST_KEYS = 50
MOST_SHOWN = 200
# Deleting notifies open pages and stops answers, session by session, so one request is limited.
MOST_AT_ONCE = 1_000
RECORDING = (
    (
        ApiKey.Recording.REDACTED,
        _("everything, credentials removed"),
        _("Passwords, API keys and the like are replaced before anything is stored."),
    ),
    (ApiKey.Recording.FULL, _("everything"), _("Requests and answers are stored unchanged.")),
    (ApiKey.Recording.NO_REPLIES, _("requests without the replies"), _("Requests are stored, answers are not.")),
    (ApiKey.Recording.METADATA, _("times and counts only"), _("Time, model, tokens and cost. No text is stored.")),
    (ApiKey.Recording.OFF, _("nothing"), _("No trace in the history. Usage still counts towards the limits.")),
)

# Admin keys are created on the command line (`manage.py keys create --scopes …`).
SCOPES = [(scope, label) for scope, label in keys.SCOPE_LABELS.items() if scope != "admin"]


class KeyForm(forms.Form):
    name = forms.CharField(
        label=_("Name"),
        max_length=100,
        help_text=format_lazy(_("For example: laptop, {client}."), client=EXAMPLE_CLIENT),
    )
    recording = forms.ChoiceField(
        label=_("Recording"),
        choices=[(mode.value, words) for mode, words, _meaning in RECORDING],
        initial=ApiKey.Recording.REDACTED.value,
        widget=forms.RadioSelect,
    )
    scopes = forms.MultipleChoiceField(
        label=_("Permissions"),
        choices=SCOPES,
        initial=keys.DEFAULT_SCOPES,
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": _("Choose at least one.")},
    )
    owner_wide = forms.BooleanField(
        label=_("Sees all my sessions"),
        required=False,
        help_text=_("Otherwise the key sees only sessions that it recorded."),
    )


class NewKeyForm(KeyForm):
    once = forms.CharField(max_length=64, required=False, widget=forms.HiddenInput)
    days = forms.TypedChoiceField(
        label=_("Validity"),
        choices=[("", _("until revoked")), (30, _("30 days")), (90, _("90 days")), (365, _("a year"))],
        coerce=int,
        empty_value=None,
        required=False,
    )


class LimitsForm(forms.ModelForm[ApiKey]):
    class Meta:
        model = ApiKey
        fields = [name for name, _words, _period in LIMITS]
        labels = {
            "cost_per_day": _("cost per day, in US dollars"),
            "cost_per_month": _("cost per month, in US dollars"),
        }


@user_form
@sensitive_variables("made")
def all_keys(request: HttpRequest) -> HttpResponse:
    form = NewKeyForm(request.POST) if request.method == "POST" else _empty_form()
    if not form.is_valid():
        return _list(request, form)
    if not can_create_key(request.user):
        raise Http404
    days = form.cleaned_data.pop("days")
    expires_at = timezone.now() + timedelta(days=days) if days else None
    try:
        made = keys.create(owner=request.user, actor=request.user, expires_at=expires_at, **form.cleaned_data)  # type: ignore[arg-type]
    except keys.AlreadyMadeError:
        text = gettext(
            "This form has already created its key. A key is shown only once. If you have no copy, revoke "
            "the key and create another."
        )
        messages.warning(request, text)
        return redirect("relay:keys")
    return _list(request, _empty_form(), made=made)


def _empty_form() -> NewKeyForm:
    """A form with a fresh `once`: a reload of the response posts it again and must not create a second key."""
    return NewKeyForm(initial={"once": uuid4().hex})


def can_create_key(user: Any) -> bool:
    """Calls with a key cost the operator money, so PARLEY_OWN_KEYS can limit keys to staff."""
    if not (user.is_staff or settings.PARLEY_OWN_KEYS):
        return False
    return keys.list_keys().filter(owner=user).count() < MOST_KEYS


def _list(request: HttpRequest, form: NewKeyForm, *, made: keys.NewKey | None = None) -> HttpResponse:
    mine = keys.list_keys(include_ended=True).filter(owner_id=request.user.pk).order_by("-created_at", "-pk")
    own, others = load_key_usage(list(mine)), []
    if can_limit_keys(request.user):
        of_others = keys.list_keys().exclude(owner=request.user.pk)
        others = load_key_usage(list(of_others.order_by("owner__username", "-created_at")[:MOST_SHOWN]))
    context = {
        "active": [usage for usage in own if usage.is_active],
        "ended": [usage for usage in own if not usage.is_active],
        "others": others,
        "made": made,
        "form": form,
        "modes": RECORDING,
        "may_make": can_create_key(request.user),
        "budget": budget_of(request.user),
        "address": settings.PARLEY_URL,
        "clients": clients_for(made.secret) if made else [],
        "has_plans": bool(plan_dialects()),
        "history_is_on": settings.CHAT_HISTORY_ENABLED,
    }
    return render(request, "gateway/keys.html", context, status=422 if form.is_bound else 200)


@sensitive_variables()
def clients_for(secret: str) -> list[dict[str, Any]]:
    """The settings of each client with a new key. Those for a subscription only if a provider takes its login."""
    url, plans = settings.PARLEY_URL, plan_dialects()
    return [
        {
            "name": setup.client,
            "settings": setup.settings(url=url, key=secret),
            "file": setup.file,
            "is_plan": bool(setup.plan),
        }
        for setup in SETUPS
        if not setup.plan or setup.plan in plans
    ]


def plan_dialects() -> set[str]:
    """The dialects for which a provider takes the logins of callers."""
    return {name for name in DIALECTS for one in router().of_plans if one.endpoint.speaks(name)}


def can_limit_keys(user: Any) -> bool:
    return bool(user.is_staff and user.has_perm("history.change_apikey"))


def key_or_404(user: Any, prefix: str, *, to_limit: bool = False) -> ApiKey:
    """A key of the user; with `to_limit`, any key for staff who may set limits."""
    found = keys.find(prefix)
    if found is None or not (found.owner_id == user.pk or (to_limit and can_limit_keys(user))):
        raise Http404
    return found


@user_form
def one_key(request: HttpRequest, prefix: str) -> HttpResponse:
    """Name, recording mode and access of a key, for its owner."""
    if request.method != "POST":
        return _page(request, key_or_404(request.user, prefix, to_limit=True))
    key = key_or_404(request.user, prefix)
    form = KeyForm(request.POST)
    if not form.is_valid():
        return _page(request, key, form=form)
    wanted = form.cleaned_data
    if "admin" in key.scopes:  # given on the command line, and not on the form
        wanted["scopes"] = [*wanted["scopes"], "admin"]
    keys.change(key, actor=request.user, **wanted)  # type: ignore[arg-type]
    messages.success(request, gettext("Saved. It takes effect within a second."))
    return redirect("relay:key", key.prefix)


@user_action
def limit(request: HttpRequest, prefix: str) -> HttpResponse:
    if not can_limit_keys(request.user):
        raise Http404
    key = key_or_404(request.user, prefix, to_limit=True)
    form = LimitsForm(request.POST, instance=ApiKey.objects.get(pk=key.pk))
    if form.is_valid():
        try:
            keys.change(key, actor=request.user, **form.cleaned_data)  # type: ignore[arg-type]
            messages.success(request, gettext("Saved. It takes effect within a second."))
            return redirect("relay:key", key.prefix)
        except keys.BadLimitError as error:
            text = gettext("Write 0 to %(most)s, or leave it empty.") % {"most": f"{error.most:,}"}
            form.add_error(error.field, text)
    return _page(request, key, limits=form)


def _page(
    request: HttpRequest, key: ApiKey, *, form: KeyForm | None = None, limits: LimitsForm | None = None
) -> HttpResponse:
    """`form` and `limits` have errors."""
    [usage] = load_key_usage([key])
    context: dict[str, Any] = {"usage": usage, "modes": RECORDING, "is_own": key.owner_id == request.user.pk}
    if context["is_own"]:
        context["arrival"] = KeyArrival.objects.filter(key=key).first()
        context["plans"] = PlanLimits.objects.filter(key=key).order_by("-at")
        context["takes_logins"] = bool(plan_dialects())
    if context["is_own"] and usage.is_active:
        context["form"] = form or KeyForm(initial={name: getattr(key, name) for name in KeyForm.base_fields})
    if can_limit_keys(request.user) and usage.is_active:
        context["limits"] = limits or LimitsForm(instance=key)
    return render(request, "gateway/key.html", context, status=422 if form or limits else 200)


@user_form
def revoke(request: HttpRequest, prefix: str) -> HttpResponse:
    key = key_or_404(request.user, prefix)
    if request.method != "POST":
        return render(request, "gateway/revoke_key.html", {"key": key})
    keys.revoke(key, actor=request.user)  # type: ignore[arg-type]
    messages.success(request, gettext("The key %(name)s is revoked.") % {"name": key.name})
    return redirect("relay:keys")


@user_form
def forget(request: HttpRequest, prefix: str) -> HttpResponse:
    """Delete the sessions of a key, after a confirmation page with their number."""
    key = key_or_404(request.user, prefix)
    sessions = sessions_owned_by(key.owner).filter(api_key=key)
    if request.method != "POST":
        context = {"key": key, "count": sessions.count(), "held": sessions.filter(hold=True).count()}
        return render(request, "gateway/delete_recorded.html", {**context, "hours": settings.PARLEY_TRASH_HOURS})
    gone = sum(actions.delete(session, by=request.user) for session in sessions[:MOST_AT_ONCE])
    text = ngettext("%(count)d session is deleted.", "%(count)d sessions are deleted.", gone) % {"count": gone}
    messages.success(request, text)
    return redirect("relay:forget" if sessions.exists() else "relay:key", key.prefix)
