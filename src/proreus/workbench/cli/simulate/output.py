"""Results of ``proreus simulate``: tables or documents out, progress and notes aside."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from proreus.insight.snapshots.cluster_objects import ClusterObjects
from proreus.insight.snapshots.object_files import read_cluster
from proreus.process.cli.console import new_console
from proreus.process.cli.documents import echo_document
from proreus.workbench.cli.simulate import tables
from proreus.workbench.simulation.capacity import PodCapacity
from proreus.workbench.simulation.comparison import ComparisonResult
from proreus.workbench.simulation.replay import ReplayResult
from proreus.workbench.simulation.results import ScenarioResult, Timings

_WIDTH = 110
"""Of tables that are not shown on a terminal, so that equal results give equal text."""


class Output:
    """Standard output in one of the forms, and progress on standard error.

    ``form``: table, json or yaml. ``timings``: whether wall-clock times are part of the output.
    """

    def __init__(self, form: str, timings: bool) -> None:
        self._form = form
        self._timings = timings
        console = new_console()
        self._console = console if console.is_terminal else new_console(width=_WIDTH)
        self._aside = Console(stderr=True, highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._aside,
            transient=True,
            disable=not self._aside.is_terminal,
        )

    def __enter__(self) -> Self:
        # Warnings about a configuration, and pods without a node, are part of the result.
        logging.getLogger("proreus").setLevel(logging.CRITICAL)
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    # ---- aside ---------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Print a sentence on standard error."""
        self._progress.stop()
        click.echo(f"Note: {text}", err=True)
        self._progress.start()

    def reading(self, paths: Sequence[Path]) -> ClusterObjects:
        """Read the objects of files, with a sign of life."""
        with self.busy("reading"):
            return read_cluster(paths)

    @contextmanager
    def busy(self, name: str) -> Iterator[None]:
        """Show that something is being done, for the length of a ``with`` block."""
        task = self._progress.add_task(name, total=None)
        try:
            yield
        finally:
            self._progress.remove_task(task)

    def progress(self, name: str) -> Callable[[int, int], None]:
        """Return a function that shows the progress, as done and total."""
        task = self._progress.add_task(name, total=None, visible=False)

        def show(done: int, total: int) -> None:
            self._progress.update(task, completed=done, total=total, visible=True)

        return show

    # ---- results -------------------------------------------------------------------------------

    def show_result(self, result: ScenarioResult, timings: Timings) -> None:
        """Print the result of one scenario."""
        self._finish(result.notes)
        if self._form != "table":
            self._write({"result": result, **self._measured(timings)})
            return
        for table in tables.of_result(result):
            self._print(table)
        self._show_timings({"": timings})

    def show_comparison(
        self, comparison: ComparisonResult, timings: tuple[Timings, Timings]
    ) -> None:
        """Print two results side by side."""
        self._finish(comparison.first.notes)
        if self._form != "table":
            self._write({"comparison": comparison, **self._measured(*timings)})
            return
        self._print(tables.of_comparison(comparison, timings if self._timings else None))
        self._show_timings(dict(zip(comparison.names, timings, strict=True)))

    def show_replays(
        self, names: list[str], results: list[ReplayResult], timings: list[Timings]
    ) -> None:
        """Print one replay or two, next to the recorded course."""
        self._finish(results[0].result.notes)
        if self._form != "table":
            pairs = zip(names, results, strict=True)
            replays = [{"name": name, **msgspec.to_builtins(one)} for name, one in pairs]
            self._write({"replays": replays, **self._measured(*timings)})
            return
        for table in tables.of_replays(names, results):
            self._print(table)
        self._show_timings(dict(zip(names, timings, strict=True)))

    def show_capacity(self, capacities: list[PodCapacity]) -> None:
        """Print how many pods fit."""
        self._finish(())
        if self._form != "table":
            self._write({"capacity": capacities})
            return
        for capacity in capacities:
            for table in tables.of_capacity(capacity):
                self._print(table)

    def _finish(self, notes: Sequence[str]) -> None:
        self._progress.stop()
        for note in notes:
            click.echo(f"Note: {note}", err=True)

    def _measured(self, *timings: Timings) -> dict[str, Any]:
        return {"timings": timings} if self._timings else {}

    def _show_timings(self, timings: dict[str, Timings]) -> None:
        for name, one in timings.items():
            text = (
                f"{name + ': ' if name else ''}loaded in {one.load_seconds:.1f} s, "
                f"{one.decisions:,} decisions in {one.schedule_seconds:.1f} s, "
                f"{one.decision_mean_ms:.2f} ms each"
            )
            click.echo(text, err=not self._timings)

    def _write(self, document: Any) -> None:
        echo_document(msgspec.json.encode(document), self._form)

    def _print(self, table: Any) -> None:
        self._console.print(table)
