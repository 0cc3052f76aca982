"""Forms of accounts: sign-in, preferences, new user."""

import zoneinfo
from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from project.accounts import lockout
from project.accounts.models import User
from project.accounts.roles import Role, give_role


class SignInForm(AuthenticationForm):
    """Checks the lockout before the password, so that a blocked attempt reveals nothing."""

    blocked = False

    def clean(self) -> dict[str, Any]:
        if self.request is None:
            raise TypeError("Signing in needs the request: failures are counted per address.")
        if not (self.cleaned_data.get("username") and self.cleaned_data.get("password")):
            return self.cleaned_data  # no password is checked, so nothing is counted
        name, address = self.cleaned_data["username"], lockout.address_of(self.request)
        known = lockout.is_known_browser(self.request, name=name)
        if not lockout.claim_attempt(name, address=address, from_known_browser=known):
            self.blocked = True
            raise ValidationError(_("Too many wrong attempts. Wait 15 minutes, or ask for a one-time link."), "blocked")
        cleaned = super().clean()
        lockout.forget_failures(name, address=address)
        return cleaned


def time_zone_choices() -> list[tuple[str, Any]]:
    names = sorted(name for name in zoneinfo.available_timezones() if "/" in name and not name.startswith("Etc/"))
    return [("", _("Same as server")), ("UTC", "UTC"), *((name, name.replace("_", " ")) for name in names)]


class PreferencesForm(forms.ModelForm[User]):
    time_zone = forms.ChoiceField(label=_("Time zone"), required=False, choices=time_zone_choices)

    class Meta:
        model = User
        fields = ["language", "theme", "time_zone"]
        widgets = {"theme": forms.RadioSelect, "language": forms.RadioSelect}


class NewPersonForm(forms.ModelForm[User]):
    """A new account. Only superusers may give a role; everyone else makes ordinary users."""

    role = forms.ChoiceField(label=_("Role"), choices=Role.choices, initial=Role.USER, widget=forms.RadioSelect)

    def __init__(self, *args: Any, creator: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not creator.is_superuser:
            del self.fields["role"]

    class Meta:
        model = User
        fields = ["username", "first_name", "last_name"]
        help_texts = {"username": _("Letters, digits and @ . + - _")}

    def save(self, commit: bool = True) -> User:
        person = super().save(commit=False)
        person.set_unusable_password()
        if commit:
            give_role(person, Role(self.cleaned_data.get("role") or Role.USER))
        return person
