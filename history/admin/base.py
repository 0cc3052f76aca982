"""Base classes of the admin: read-only pages, and lists whose cost does not depend on the number of rows.

- A list is counted up to 2,000 rows. Staff narrow it down to see older rows.
- Filters offer the values of the newest 500 rows.
- Nothing is sorted by a column without an index.
- The date hierarchy shows the calendar from the oldest row to the newest, not only days with rows.
"""

from calendar import monthrange
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar
from uuid import UUID

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.dates import MONTHS
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from history.access.permissions import Purpose, can_access_others
from history.text import whole_number

M = TypeVar("M", bound=Model)

MOST_COUNTED = 2_000
LOOKED_AT = 500


def session_link(session_id: UUID, text: object) -> SafeString:
    return format_html('<a href="{}">{}</a>', reverse("admin:history_session_change", args=[session_id]), text)


class CappedPaginator(Paginator[Any]):
    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        if not isinstance(rows, QuerySet):
            return len(rows)
        return int(rows.order_by()[:MOST_COUNTED].count())


class ReadOnly:
    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    has_change_permission = has_delete_permission = has_add_permission


class ReadOnlyAdmin(ReadOnly, admin.ModelAdmin[M]):
    more_lookups: tuple[str, ...] = ()  # columns that our own links use, beside the filters

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Only the filters of the list. Django allows any column, so staff could guess a text that they may not read
        letter by letter (`?inputs__contains=`).
        """
        filters = [one[0] if isinstance(one, tuple) else one for one in self.list_filter]
        allowed = {*(getattr(one, "parameter_name", one) for one in filters), self.date_hierarchy, *self.more_lookups}
        return lookup.partition("__")[0] in allowed and super().lookup_allowed(lookup, value, request)  # type: ignore[arg-type]


class LongListAdmin(ReadOnlyAdmin[M]):
    """A list that may be very long. `purpose`: what viewers must be permitted to do with sessions of other users."""

    purpose = Purpose.LIST
    paginator = CappedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    sortable_by = ()
    list_per_page = 50
    list_max_show_all = 0
    change_list_template = "admin/history/change_list.html"

    def has_view_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return can_access_others(request.user, self.purpose)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Keep the date hierarchy for the filters, which make a range of it, but replace its queries."""
        changelist: Any = super().get_changelist_instance(request)
        changelist.calendar = calendar(changelist, self.date_hierarchy) if self.date_hierarchy else None
        changelist.date_hierarchy = None
        changelist.is_capped = changelist.result_count >= MOST_COUNTED
        return changelist


def calendar(changelist: Any, field: str) -> dict[str, Any]:
    names = [f"{field}__{part}" for part in ("year", "month", "day")]
    year, month, day = (whole_number(changelist.params.get(name)) for name in names)

    def link(text: str, *parts: int) -> dict[str, str]:
        chosen = dict(zip(names, parts, strict=False))
        return {"link": changelist.get_query_string(chosen, names[len(parts) :]), "title": text}

    back = [link(_("All dates"))] if year else []
    back += [link(str(year), year)] if year and month else []
    if not year:
        choices = [link(str(one), one) for one in _years(changelist.root_queryset, field)]
    elif not month:
        choices = [link(str(name).capitalize(), year, number) for number, name in MONTHS.items()]
    elif not day:
        days = monthrange(year, month)[1] if month <= 12 else 0
        choices = [link(str(one), year, month, one) for one in range(1, days + 1)]
    else:
        back, choices = [*back, link(str(MONTHS.get(month, month)), year, month)], []
    return {"back": back, "choices": choices}


def _years(rows: QuerySet[Any], field: str) -> list[int]:
    """From the oldest row to the newest, by two index lookups."""
    ends = [rows.order_by(order).values_list(field, flat=True).first() for order in (field, f"-{field}")]
    if not all(isinstance(end, datetime) for end in ends):
        return []
    first, last = (timezone.localtime(end).year for end in ends if end)
    return list(range(max(first, last - 50), last + 1))


def recent(
    column: str, words: Any, choices: Any = (), *, called: str = "", by_engine: bool = False
) -> type[admin.SimpleListFilter]:
    """Offers the values of the newest rows. `by_engine`: the search index applies it, not the database."""

    class Recent(admin.SimpleListFilter):
        title = words
        parameter_name = called or column

        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
            if choices:
                return list(choices)
            newest = model_admin.model.objects.order_by(*model_admin.get_ordering(request))
            values = {value for value in newest.values_list(column, flat=True)[:LOOKED_AT] if value}
            chosen = request.GET.get(called or column)
            return [(value, value) for value in sorted(values | {chosen} if chosen else values)]

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            return queryset.filter(**{column: self.value()}) if self.value() and not by_engine else queryset

    return Recent
