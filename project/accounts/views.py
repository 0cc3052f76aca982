"""Pages of accounts: sign-in, sign-in links, password, preferences, and the list of users for staff."""

from typing import Any

from django.contrib import messages
from django.contrib.auth import login, update_session_auth_hash, views
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import PasswordChangeForm, SetPasswordForm
from django.db.models import Exists, OuterRef, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from history.access import audit
from history.http import is_own_url, staff_only
from history.models import Session
from project.accounts.forms import NewPersonForm, PreferencesForm, SignInForm
from project.accounts.links import HOURS, claim_link, create_link, find_link
from project.accounts.lockout import remember_browser
from project.accounts.models import SignInLink, User
from project.accounts.roles import role_labels
from project.config.installation import command_line


class SignedInRequest(HttpRequest):
    """A request behind `login_required` or `staff_only`, for the type checker."""

    user: User


class SignIn(views.LoginView):
    template_name = "accounts/signin.html"
    authentication_form = SignInForm
    extra_context = {"command": command_line("signin")}
    redirect_authenticated_user = True

    def form_valid(self, form: Any) -> HttpResponse:
        response = super().form_valid(form)
        remember_browser(response, name=form.get_user().get_username())
        return response

    def form_invalid(self, form: Any) -> HttpResponse:
        response = super().form_invalid(form)
        response.status_code = 429 if form.blocked else 200
        return response


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def link(request: HttpRequest, token: str) -> HttpResponse:
    """A page with a button, because previews of mail programs and chats open links."""
    if request.method != "POST":
        return show_landing_page(request, find_link(token))
    claimed = claim_link(token)
    if claimed is None:
        return show_landing_page(request, None)
    login(request, claimed.user, backend="django.contrib.auth.backends.ModelBackend")
    response = redirect("home")
    if claimed.created_by_id and not claimed.user.has_usable_password():
        messages.info(request, _("Welcome. Choose a password to sign in without a link."))
        response = redirect("accounts:password")
    remember_browser(response, name=claimed.user.get_username())
    return response


def show_landing_page(request: HttpRequest, found: SignInLink | None) -> HttpResponse:
    context = {"link": found, "command": command_line("signin")}
    return render(request, "accounts/link.html", context, status=200 if found else 410)


@sensitive_post_parameters()
@never_cache
@login_required
def password(request: SignedInRequest) -> HttpResponse:
    """Ask for the old password only if there is one."""
    form_class = PasswordChangeForm if request.user.has_usable_password() else SetPasswordForm
    form = form_class(request.user, request.POST or None)
    if request.method == "POST" and form.is_valid():
        update_session_auth_hash(request, form.save())
        messages.success(request, _("Password changed."))
        return redirect("accounts:preferences")
    return render(request, "accounts/password.html", {"form": form})


@login_required
def preferences(request: SignedInRequest) -> HttpResponse:
    form = PreferencesForm(request.POST or None, instance=request.user)
    if request.method == "POST" and form.is_valid():
        form.save()
        return redirect("accounts:preferences_saved")
    return render(request, "accounts/preferences.html", {"form": form})


@login_required
def preferences_saved(request: SignedInRequest) -> HttpResponse:
    """A request of its own, so that the message is in the language just chosen."""
    messages.success(request, _("Preferences saved."))
    return redirect("accounts:preferences")


@never_cache
@staff_only
def people(request: SignedInRequest) -> HttpResponse:
    form = NewPersonForm(request.POST or None, creator=request.user)
    if request.method == "POST" and form.is_valid():
        return show_link(request, form.save())
    return show_people(request, form=form)


@never_cache
@staff_only
@require_POST
def link_for(request: SignedInRequest, pk: int) -> HttpResponse:
    person = get_object_or_404(_users(), pk=pk)
    if not may_make_link(request.user, person):
        raise Http404
    return show_link(request, person)


def _users() -> QuerySet[Any]:
    return User.objects.annotate(has_sessions=Exists(Session.objects.filter(owner=OuterRef("pk"))))


def may_make_link(maker: User, person: Any) -> bool:
    """Whether staff may create a sign-in link for this user. It is as good as the user's password.

    It must not give more rights than its creator has, nor sessions without a reason, unless they may change users.
    """
    if not person.is_active:
        return False
    if person == maker or maker.is_superuser:
        return True
    if person.is_staff or person.is_superuser:
        return False
    return not person.has_sessions or maker.has_perm("accounts.change_user")


def show_link(request: SignedInRequest, person: User) -> HttpResponse:
    """Show the link in the response to the POST. It is not stored and cannot be shown again."""
    address = create_link(person, created_by=request.user)
    audit.record("person.link", actor=request.user.pk, person=person.pk)
    form = NewPersonForm(creator=request.user)
    return show_people(request, form=form, new_link={"person": person, "address": address, "hours": HOURS})


def show_people(request: SignedInRequest, **context: Any) -> HttpResponse:
    users = [
        {"person": person, "roles": role_labels(person), "may_make_link": may_make_link(request.user, person)}
        for person in _users().order_by("username").prefetch_related("groups")
    ]
    return render(request, "accounts/people.html", {"users": users, **context})


def admin_signin(request: HttpRequest) -> HttpResponse:
    """Sign-in of the admin: the page that counts failures."""
    if request.user.is_authenticated:
        raise Http404
    target = request.GET.get("next", "")
    return views.redirect_to_login(target if is_own_url(request, target) else "/admin/")
