"""``proreus new-plugin``: a package with a plugin, its configuration, its tests and a README."""

from __future__ import annotations

from pathlib import Path

import click

from proreus.process.cli.new_plugin.names import InvalidPluginName, Names

POINTS = {
    "preEnqueue": "Keeps pods out of the queue whose label says gated.",
    "queueSort": "Sorts the queue by priority, then by name.",
    "preFilter": "Rejects pods whose label says nowhere, before any node is filtered.",
    "filter": "Keeps pods off nodes that carry the label.",
    "postFilter": "Finds no way to make an unschedulable pod schedulable, and says so.",
    "preScore": "Skips its Score for pods whose label says anywhere.",
    "score": "Prefers the nodes with the fewest pods.",
    "reserve": "Records the node of each pod.",
    "permit": "Holds pods whose label says held, for half a minute at most.",
    "preBind": "Prepares what a pod needs before it is bound.",
    "bind": "Leaves binding to the next plugin.",
    "postBind": "Records every bound pod.",
}
"""The example at each extension point, in the order in which they are called for a pod."""


def _points(context: click.Context, parameter: click.Parameter, text: str) -> dict[str, str]:
    """Return the named entries of ``POINTS``."""
    wanted = {_comparable(point): point.strip() for point in text.split(",") if point.strip()}
    chosen = {point: does for point, does in POINTS.items() if _comparable(point) in wanted}
    unknown = [given for word, given in wanted.items() if word not in map(_comparable, POINTS)]
    if unknown or not wanted:
        faulty = f"{', '.join(unknown)}: " if unknown else ""
        hint = _BACKGROUND_HINT if "background" in wanted else ""
        choices = ", ".join(POINTS)
        raise click.BadParameter(f"{faulty}choose from {choices}, separated by commas{hint}")
    return chosen


_BACKGROUND_HINT = (
    "; work in the background is no point: add BackgroundPlugin to the bases of the class, and its "
    "method run_in_background"
)


def _comparable(point: str) -> str:
    """Return a point's name so that ``preFilter``, ``pre_filter`` and ``PreFilterPlugin`` agree."""
    return point.strip().replace("_", "").lower().removesuffix("plugin")


@click.command("new-plugin", short_help="Create a package for your own plugin.")
@click.argument("name")
@click.option(
    "--dir",
    "parent",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Folder to create the package's folder in; default: the current one.",
)
@click.option(
    "--points",
    default="filter,score",
    show_default=True,
    callback=_points,
    help=f"Extension points, separated by commas: {', '.join(POINTS)}.",
)
@click.option(
    "--columns",
    is_flag=True,
    help="Write Filter and Score over columns as well, and test that both forms agree.",
)
def command(name: str, parent: Path, points: dict[str, str], columns: bool) -> None:
    """Create a package for a plugin: code, configuration, tests, README.

    NAME is the plugin's name in the configuration, in CamelCase: GpuHeadroom.
    """
    from proreus.process.cli.new_plugin.files import files_of
    from proreus.process.loading.load import add_ons

    try:
        names = Names.of(name)
    except InvalidPluginName as error:
        raise click.BadParameter(str(error), param_hint="NAME") from error
    if columns and not {"filter", "score"} & points.keys():
        raise click.BadParameter("only filter and score have a form over columns")
    folder = parent / names.package
    if folder.exists() and any(folder.iterdir()):
        raise click.ClickException(f"{folder} exists and is not empty")
    for path, text in files_of(names, points, columns).items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        click.echo(f"wrote {file}")
    if name in add_ons():
        click.echo(f"\n{name} is the name of an add-on, which this plugin replaces where both are")
    click.echo(f"\nnext: cd {folder} && pytest")
