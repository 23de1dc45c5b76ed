"""The query of a list: its filters, its order, and links that keep both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

from aiohttp import web

Row = TypeVar("Row")
SHOWN = 100
"""The number of rows that a list shows."""
_MAX_TEXT = 300


def text_of(request: web.BaseRequest, name: str) -> str:
    """Return a parameter of the query, shortened, "" without one."""
    return request.query.get(name, "").strip()[:_MAX_TEXT]


class Listing:
    """A request for a list: its filters and its order.

    ``keys``: the functions that sort by a column, by its name; the first one is the default. A name
    with a minus is sorted from the largest down when the column is first clicked.
    """

    def __init__(
        self,
        request: web.BaseRequest,
        page: str,
        keys: Mapping[str, Callable[[Any], Any]],
        filters: Sequence[str] = (),
    ) -> None:
        self.page = page
        self.filters = {name: text_of(request, name) for name in filters}
        self._first = {name.removeprefix("-"): name for name in keys}
        self._keys = {name.removeprefix("-"): key for name, key in keys.items()}
        sort = text_of(request, "sort")
        self.sort = sort if sort.removeprefix("-") in self._keys else next(iter(keys))

    def __getitem__(self, name: str) -> str:
        return self.filters[name]

    def sorted(self, rows: Iterable[Row]) -> list[Row]:
        """Return the rows in the order that is asked for."""
        column = self.sort.removeprefix("-")
        return sorted(rows, key=self._keys[column], reverse=self.sort != column)

    def direction(self, column: str) -> str:
        """Return the value of ``aria-sort`` for a column."""
        if column != self.sort.removeprefix("-"):
            return "none"
        return "ascending" if column == self.sort else "descending"

    def by(self, column: str) -> str:
        """Return the query with which the list is sorted by a column, or the other way round."""
        first = self._first[column]
        other = column if first != column else f"-{column}"
        return self._query(other if self.sort == first else first)

    @property
    def query(self) -> str:
        """The query of the list as it is."""
        return self._query(self.sort)

    def _query(self, sort: str) -> str:
        given = {name: value for name, value in self.filters.items() if value}
        return urlencode({**given, "sort": sort})
