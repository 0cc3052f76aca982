"""Admin of API keys: staff create them, change their limits and revoke them. A new key is shown once.

Owner and scopes are fixed at creation. A key reads the sessions of its owner without a reason, so staff create keys for
themselves, and only a superuser creates them for others or with the scope `admin`.
"""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.cache import add_never_cache_headers
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from history.access import audit, keys
from history.models import ApiKey

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
        response = TemplateResponse(request, "admin/history/apikey/made.html", context)
        add_never_cache_headers(response)
        return response

    @admin.action(description=_("Revoke selected keys"), permissions=["change"])
    def revoke_chosen(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        ended = sum(keys.revoke(key, actor=request.user) for key in queryset)  # type: ignore[arg-type]
        text = ngettext("%(count)d key was revoked.", "%(count)d keys were revoked.", ended)
        self.message_user(request, text % {"count": ended}, messages.SUCCESS)

    shown_scopes = admin.display(lambda _self, key: ", ".join(key.scopes), description=_("scopes"))
