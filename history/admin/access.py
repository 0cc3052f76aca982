"""Admin of API keys, of the audit chain and of share links.

Staff create keys, change their limits and revoke them. A new key is shown once. Owner and scopes are fixed at creation.
A key reads the sessions of its owner without a reason, so staff create keys for themselves, and only a superuser
creates them for others or with the scope `admin`. The audit chain has ids; today's names are looked up.
"""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.contrib.auth import get_user_model
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.cache import add_never_cache_headers
from django.utils.translation import gettext, gettext_lazy as _, ngettext

from history.access import audit, keys
from history.access.permissions import Purpose, rows_for
from history.admin.base import LongListAdmin, recent, session_link
from history.models import ApiKey, AuditEvent, ShareLink
from history.text import whole_number
from history.transcripts import share_links

FIXED = ("owner", "scopes", "owner_wide")


class KeyForm(forms.ModelForm[ApiKey]):
    scopes = forms.MultipleChoiceField(
        label=_("scopes"),
        choices=[(scope, scope) for scope in keys.SCOPES],
        initial=keys.DEFAULT_SCOPES,
        widget=forms.CheckboxSelectMultiple,
    )
    maker: Any = None

    class Meta:
        model = ApiKey
        fields = ("name", "owner", "scopes", "owner_wide", "recording", "expires_at", *keys.LIMITS)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        owner, scopes = cleaned.get("owner"), cleaned.get("scopes") or ()
        if not self.instance._state.adding or self.maker is None or owner is None:
            return cleaned
        if not self.maker.is_superuser and owner != self.maker:
            text = gettext(
                "Only superusers create keys for other users. A key reads everything that its owner can read."
            )
            self.add_error("owner", text)
        if "admin" in scopes and not (self.maker.is_superuser and owner.is_staff):
            self.add_error("scopes", gettext("Only superusers grant the scope admin, and only to staff."))
        return cleaned


@admin.register(ApiKey)
class ApiKeyAdmin(admin.ModelAdmin[ApiKey]):
    form = KeyForm
    list_display = ("name", "owner", "recording", "last_used_at", "shown_scopes", "prefix", "expires_at", "revoked_at")
    list_select_related = ("owner",)
    list_filter = ("recording", ("revoked_at", admin.EmptyFieldListFilter))
    search_fields = ("name", "prefix", "owner__username")
    actions = ("revoke_chosen",)
    fieldsets = (
        (None, {"fields": ("name", "owner", "scopes", "owner_wide", "recording", "expires_at")}),
        (_("Limits"), {"fields": keys.LIMITS[:7], "description": _("Empty: no limit.")}),
        (_("Retention"), {"fields": keys.LIMITS[7:], "description": _("Empty: the default of the source.")}),
    )
    facts = ((_("Record"), {"fields": ("prefix", "created_at", "last_used_at", "revoked_at")}),)

    def get_form(self, request: HttpRequest, obj: ApiKey | None = None, change: bool = False, **kwargs: Any) -> Any:
        form: Any = super().get_form(request, obj, change, **kwargs)
        form.maker = request.user
        return form

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Label the two inputs of a time for screen readers, which Django does not."""
        field: Any = super().formfield_for_dbfield(db_field, request, **kwargs)
        if db_field.name == "expires_at":
            for box, name in zip(field.widget.widgets, (gettext("Date"), gettext("Time")), strict=True):
                box.attrs["aria-label"] = f"{field.label}: {name}"
        return field

    def get_fieldsets(self, request: HttpRequest, obj: ApiKey | None = None) -> Any:
        return self.fieldsets if obj is None else (*self.fieldsets, *self.facts)

    def get_readonly_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> tuple[str, ...]:
        return () if obj is None else (*FIXED, "prefix", "created_at", "last_used_at", "revoked_at")

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        return {"owner": str(request.user.pk), "scopes": keys.DEFAULT_SCOPES}

    def has_delete_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        """Sessions refer to their key, so it is revoked instead."""
        return False

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        if change:
            super().save_model(request, obj, form, change)
            audit.record("key.changed", actor=request.user.pk, key=obj.pk, fields=sorted(form.changed_data))
            keys.ring.forget(obj)
            return
        values: dict[str, Any] = {name: form.cleaned_data[name] for name in KeyForm.Meta.fields}
        made = keys.create(**values, actor=request.user)  # type: ignore[arg-type]
        obj.pk = made.api_key.pk
        request.made_key = made  # type: ignore[attr-defined]

    def log_addition(self, request: HttpRequest, obj: ApiKey, message: Any) -> Any:
        """Log the name and prefix that the key got when it was stored."""
        obj.refresh_from_db()
        return super().log_addition(request, obj, message)

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        """Show the key on this page only: not in a message, a cookie or a cache."""
        context = {
            **self.admin_site.each_context(request),
            "title": gettext("Your new key"),
            "opts": self.opts,
            "made": request.made_key,  # type: ignore[attr-defined]
        }
        response = TemplateResponse(request, "admin/history/apikey/created.html", context)
        add_never_cache_headers(response)
        return response

    @admin.action(description=_("Revoke selected keys"), permissions=["change"])
    def revoke_chosen(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        ended = sum(keys.revoke(key, actor=request.user) for key in queryset)  # type: ignore[arg-type]
        text = ngettext("%(count)d key was revoked.", "%(count)d keys were revoked.", ended)
        self.message_user(request, text % {"count": ended}, messages.SUCCESS)

    shown_scopes = admin.display(lambda _self, key: ", ".join(key.scopes), description=_("scopes"))


@admin.register(AuditEvent)
class AuditEventAdmin(LongListAdmin[AuditEvent]):
    list_display = ("seq", "at", "action", "who", "shown_session", "reason")
    list_filter = (recent("action", _("action")),)
    more_lookups = ("session",)
    search_fields = ("action",)
    search_help_text = _("Session id, event number or username.")
    ordering = ("-seq",)
    fields = ("seq", "at", "action", "who", "actor", "key", "shown_session", "reason", "details", "shown_seal")
    readonly_fields = ("who", "shown_session", "shown_seal")

    def has_view_permission(self, request: HttpRequest, obj: AuditEvent | None = None) -> bool:
        return request.user.has_perm("history.view_auditevent")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[AuditEvent], search_term: str
    ) -> tuple[QuerySet[AuditEvent], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        if (seq := whole_number(term)) is not None:
            return queryset.filter(seq=seq), False
        try:
            return queryset.filter(session=UUID(term)), False
        except ValueError:
            person = get_user_model().objects.filter(username=term).values_list("pk", flat=True).first()
            return (queryset.filter(actor=person) if person else queryset.none()), False

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changelist = super().get_changelist_instance(request)
        add_names(changelist.result_list)
        return changelist

    @admin.display(description=_("actor"))
    def who(self, event: Any) -> str:
        if not hasattr(event, "names"):
            add_names([event])
        return str(event.names)

    @admin.display(description=_("session"))
    def shown_session(self, event: AuditEvent) -> str:
        return session_link(event.session, str(event.session)[:8]) if event.session else "–"

    shown_seal = admin.display(lambda _self, event: str(event.seal.hex()), description=_("seal"))


def add_names(events: Iterable[Any]) -> None:
    """Add the names of actors by two queries for a page of events; the id if it no longer exists."""
    people = get_user_model().objects.in_bulk([event.actor for event in events if event.actor])
    keys = ApiKey.objects.in_bulk([event.key for event in events if event.key])
    for event in events:
        names = [str(people.get(event.actor, f"#{event.actor}"))] if event.actor else []
        names += [str(keys.get(event.key, f"key #{event.key}"))] if event.key else []
        event.names = ", ".join(names) or "–"


@admin.register(ShareLink)
class ShareLinkAdmin(LongListAdmin[ShareLink]):
    """The audit chain has who made a link. The link itself is not stored."""

    list_display = ("session", "follows", "views", "last_viewed_at", "created_at", "expires_at", "revoked_at")
    list_select_related = ("session",)
    list_filter = (("revoked_at", admin.EmptyFieldListFilter),)
    fields = ("session", "leaf", "follows", "views", "last_viewed_at", "created_at", "expires_at", "revoked_at")
    ordering = ("-created_at", "-pk")
    actions = ("revoke_chosen",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[ShareLink]:
        return rows_for(request.user, Purpose.LIST, ShareLink.objects.all()).order_by("-created_at", "-pk")

    def has_view_permission(self, request: HttpRequest, obj: ShareLink | None = None) -> bool:
        return super().has_view_permission(request, obj) and request.user.has_perm("history.view_sharelink")

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("history.change_sharelink")

    @admin.action(description=_("Revoke selected links"), permissions=["revoke"])
    def revoke_chosen(self, request: HttpRequest, queryset: QuerySet[ShareLink]) -> None:
        ended = sum(share_links.revoke(link, by=request.user) for link in queryset)
        text = ngettext("%(count)d link was revoked.", "%(count)d links were revoked.", ended)
        self.message_user(request, text % {"count": ended}, messages.SUCCESS)
