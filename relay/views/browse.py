"""What is done to the sessions that were ticked on /history/: archived, deleted, and brought back.

Beside the rail's own verbs, because whoever is being answered in a deleted session has to be stopped. One archives
one's own; staff with the right to delete do so with other people's, too. Sessions that somebody may not touch are left
out without a word: from here nobody learns that they exist.
"""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_POST

from history import recorder
from history.browsing import just_deleted_by
from history.rights import Purpose, sessions_for
from relay.views.rail import back, bring_back, hide, picked, tell


@login_required
@require_POST
def delete_many(request: HttpRequest) -> HttpResponse:
    for session in sessions_for(request.user, Purpose.DELETE).filter(pk__in=picked(request)):
        hide(session, by=request.user)
    return back(request, otherwise="history:browse")


@login_required
@require_POST
def undelete_all(request: HttpRequest) -> HttpResponse:
    for session in just_deleted_by(request.user):
        bring_back(session, by=request.user)
    return back(request, otherwise="history:browse")


@login_required
@require_POST
def archive_many(request: HttpRequest, *, archived: bool) -> HttpResponse:
    for session in sessions_for(request.user, Purpose.WRITE).filter(pk__in=picked(request)):
        recorder.archive(session, archived=archived)
        tell(session)
    return back(request, otherwise="history:browse")
