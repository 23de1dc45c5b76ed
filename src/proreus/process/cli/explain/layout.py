"""Lines and tables in which explanations are printed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime

from rich import box
from rich.table import Table
from rich.text import Text


def new_table(title: str, *columns: str, rows: Iterable[Iterable[object]] = ()) -> Table:
    """Return a table with a title."""
    table = Table(
        *columns, title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else str(cell) for cell in row))
    return table


def names_line(title: str, listed: Collection[str]) -> Iterator[Text]:
    """Yield a line with names, if there are any."""
    if listed:
        yield line(title, ", ".join(listed))


def some(listed: Collection[str], count: int) -> str:
    """Return names; ``count``: how many there are in all."""
    return ", ".join(listed) + (", …" if count > len(listed) else "")


def line(name: str, text: str) -> Text:
    """Return a line with a name in bold."""
    return Text.assemble((f"{name}: ", "bold"), text)


def as_utc(instant: float) -> str:
    """Return an instant in UTC."""
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
