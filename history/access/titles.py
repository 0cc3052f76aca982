"""Titles that a viewer may see. A title is mostly the first words of a conversation, so it is text.

Staff who list other users' sessions see a neutral name until they have opened one with a reason
(`history.access.reasons`). `rights.sessions_for` puts this on every queryset that reaches beyond the viewer's own
sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Q

from history.access.permissions import Purpose, Viewer, can_access_others
from history.access.reasons import opened_by_reason, person_of
from history.models import Session


@dataclass(frozen=True)
class TitleRule:
    """What `SessionQuerySet` asks before it hands out sessions."""

    viewer: Viewer

    def hide(self, sessions: Sequence[Session]) -> None:
        person = person_of(self.viewer)
        others = [session for session in sessions if session.owner_id != person]
        shown = self._opened([session.pk for session in others])
        for session in others:
            if session.pk not in shown:
                session.hide_title()

    def visible(self) -> Q:
        """Sessions whose titles may be searched."""
        return Q(owner_id=person_of(self.viewer)) | Q(pk__in=self._opened(None))

    def _opened(self, ids: Sequence[UUID] | None) -> set[UUID]:
        if ids == [] or not can_access_others(self.viewer, Purpose.READ):
            return set()
        return opened_by_reason(self.viewer, ids)
