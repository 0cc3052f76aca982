"""Notebooks (`/notebook/`): what agents remember about a user, to edit and to restore."""

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.validators import MaxLengthValidator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext, gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from history.http import user_action, user_form
from relay.models import Agent
from relay.tools.built_in import notebooks


class NotebookForm(forms.Form):
    content = forms.CharField(
        label=_("Notes about you"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 16}),
        validators=[MaxLengthValidator(notebooks.MOST_CHARS)],
        help_text=_("Markdown. The agent reads it in each conversation with you."),
    )
    seen = forms.IntegerField(min_value=0, max_value=2**62, widget=forms.HiddenInput)


@login_required
@never_cache
@require_GET
def all_notebooks(request: HttpRequest) -> HttpResponse:
    known = {agent.name: str(agent) for agent in Agent.objects.all()}
    written = notebooks.contents(request.user)
    names = [*known, *sorted(written.keys() - known.keys())]
    shown = [(name, known.get(name, name), written.get(name, "")) for name in names]
    return render(request, "settings/notebooks.html", {"notebooks": shown})


@user_form
def one_notebook(request: HttpRequest, agent: str) -> HttpResponse:
    label = _label_or_404(request.user, agent)
    if request.method != "POST":
        return _render_notebook(request, agent, label)
    form = NotebookForm(request.POST)
    if form.is_valid():
        try:
            notebooks.write(request.user, agent, **form.cleaned_data)
            messages.success(request, gettext("Notebook saved."))
            return redirect("relay:notebook", agent=agent)
        except notebooks.CannotWrite:
            problem = gettext(
                "The notebook has changed in the meantime. The current text is below. Save again to replace it."
            )
            form.add_error("content", problem)
    return _render_notebook(request, agent, label, form)


@user_action
def restore(request: HttpRequest, agent: str) -> HttpResponse:
    """Append an older version as the newest."""
    _label_or_404(request.user, agent)
    number = request.POST.get("version", "")
    old = next((one for one in notebooks.versions(request.user, agent) if str(one.number) == number), None)
    if old is None:
        raise Http404
    notebooks.write(request.user, agent, old.content, seen=notebooks.read(request.user, agent).version)
    messages.success(request, gettext("Version restored."))
    return redirect("relay:notebook", agent=agent)


def _render_notebook(request: HttpRequest, agent: str, label: str, form: NotebookForm | None = None) -> HttpResponse:
    now = notebooks.read(request.user, agent)
    if form is None:
        form = NotebookForm(initial={"content": now.content, "seen": now.version})
    else:
        # The page shows the current version, so a second save replaces it.
        form.data = {**form.data, "content": form.data.get("content", ""), "seen": str(now.version)}
    context = {
        "agent": agent,
        "label": label,
        "notebook": now,
        "form": form,
        "versions": notebooks.versions(request.user, agent),
        "most": notebooks.MOST_CHARS,
    }
    return render(request, "settings/notebook.html", context, status=422 if form.is_bound else 200)


def _label_or_404(person: Any, agent: str) -> str:
    """The label of an agent, or the name of a removed one that still has a notebook."""
    row = Agent.objects.filter(name=agent).first()
    if row is None and not notebooks.read(person, agent).version:
        raise Http404
    return str(row or agent)
