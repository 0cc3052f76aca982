"""Roles of staff accounts: ordinary groups, made when first given and then left to the administrators."""

from typing import Any

from django.contrib.auth.models import Group, Permission
from django.db import models, transaction
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from project.accounts.models import User


class Role(models.TextChoices):
    USER = "user", _("User: chats, sees own sessions")
    OPERATOR = "operator", _("Operator: providers, agents, keys; no texts of other users")
    AUDITOR = "auditor", _("Auditor: reads and exports sessions of others, with a reason")
    ADMINISTRATOR = "administrator", _("Administrator: everything")


SHORT_LABELS = {Role.OPERATOR: _("operator"), Role.AUDITOR: _("auditor")}
GROUPS = {Role.OPERATOR: "Operators", Role.AUDITOR: "Auditors"}
# Per app. Pages link to owners and keys, so both may see these.
PERMISSIONS = {
    Role.OPERATOR: {
        "history": ["view_session", "view_exchange", "view_apikey", "change_apikey"],
        "relay": [f"{verb}_{model}" for model in ("agent", "allowance") for verb in ("view", "add", "change")],
        "accounts": ["view_user"],
    },
    Role.AUDITOR: {
        "history": [
            *("view_session", "read_session", "export_session", "hold_session"),
            *("view_message", "view_toolcall", "view_exchange", "view_auditevent", "view_apikey"),
        ],
        "accounts": ["view_user"],
    },
}


@transaction.atomic
def give_role(person: User, role: Role) -> None:
    person.is_staff = role != Role.USER
    person.is_superuser = role == Role.ADMINISTRATOR
    person.save()
    if name := GROUPS.get(role):
        group, is_new = Group.objects.get_or_create(name=name)
        if is_new:
            wanted = Q()
            for app, codenames in PERMISSIONS[role].items():
                wanted |= Q(content_type__app_label=app, codename__in=codenames)
            group.permissions.set(Permission.objects.filter(wanted))
        person.groups.add(group)


def role_labels(person: User) -> list[Any]:
    """Short labels of what a staff account may do. Empty for ordinary users."""
    if person.is_superuser:
        return [_("administrator")]
    if not person.is_staff:
        return []
    groups = {group.name for group in person.groups.all()}
    return [label for role, label in SHORT_LABELS.items() if GROUPS[role] in groups] or [_("staff")]
