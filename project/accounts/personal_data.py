"""Personal data of accounts, for export and erasure: profile, sign-in links, failed sign-ins, admin log."""

from collections.abc import Iterator
from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import AbstractUser
from django.contrib.contenttypes.models import ContentType

from history.privacy import PersonalData, register_personal_data, rows_of_table
from project.accounts.lockout import hash_of
from project.accounts.models import SignInFailure, SignInLink, User

PROFILE_FIELDS = (
    *("id", "username", "first_name", "last_name", "email", "is_active", "is_staff", "is_superuser"),
    *("date_joined", "last_login", "language", "theme", "time_zone"),
)


def register() -> None:
    register_personal_data(rows_of_table("sign_in_links", SignInLink, of="user", secrets=("token_hash",)))
    register_personal_data(PersonalData("sign_in_failures", _failures, _forget_failures))
    register_personal_data(PersonalData("admin_log", _admin_log, _anonymise_log))
    register_personal_data(PersonalData("profile", _profile, _anonymise, last=True))


def _profile(person: AbstractUser) -> Iterator[dict[str, Any]]:
    """Everything but the password hash."""
    yield {
        **{name: getattr(person, name) for name in PROFILE_FIELDS},
        "groups": list(person.groups.values_list("name", flat=True)),
        "permissions": sorted(person.user_permissions.values_list("codename", flat=True)),
    }


def _anonymise(person: AbstractUser) -> int:
    """Keep the row as a number without rights. It cannot sign in."""
    person.groups.clear()
    person.user_permissions.clear()
    blank = User(pk=person.pk, username=f"erased-{person.pk}")
    blank.set_unusable_password()
    return User.objects.filter(pk=person.pk).update(
        username=blank.username,
        password=blank.password,
        **dict.fromkeys(("first_name", "last_name", "email", "language", "time_zone"), ""),
        **dict.fromkeys(("is_active", "is_staff", "is_superuser"), False),
        theme=User.Theme.SYSTEM,
        last_login=None,
    )


def _failures(person: AbstractUser) -> Iterator[dict[str, Any]]:
    for failure in SignInFailure.objects.filter(name_hash=hash_of(person.get_username())):
        yield {"at": failure.at, "address": failure.address}


def _forget_failures(person: AbstractUser) -> int:
    return SignInFailure.objects.filter(name_hash=hash_of(person.get_username())).delete()[0]


def _about(person: AbstractUser) -> dict[str, Any]:
    return {"content_type": ContentType.objects.get_for_model(User), "object_id": str(person.pk)}


def _admin_log(person: AbstractUser) -> Iterator[dict[str, Any]]:
    """Changes to this account, and changes that its user made."""
    for entry in (LogEntry.objects.filter(**_about(person)) | LogEntry.objects.filter(user=person.pk)).order_by("pk"):
        message = entry.get_change_message()
        yield {"at": entry.action_time, "by": entry.user_id, "object": entry.object_repr, "message": message}


def _anonymise_log(person: AbstractUser) -> int:
    """The log keeps the number of the account, without the name."""
    return LogEntry.objects.filter(**_about(person)).update(object_repr=f"erased-{person.pk}")
