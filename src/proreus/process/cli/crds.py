"""``proreus crds`` lists, prints or writes the definitions of the custom resources in use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import click

from proreus.process.cli.documented_options import documented_options

_FOLDER = "deploy/crds"


def definition_files() -> dict[str, Path]:
    """Return the files of all definitions, by name."""
    from proreus.process.cli.shipped import shipped_folder

    files = sorted(shipped_folder(_FOLDER).glob("*.yaml"))
    return {file.stem: file for file in files if file.stem != "kustomization"}


@click.command("crds", short_help="List, print or write the definitions of custom resources.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@documented_options
def command(
    *,
    names: tuple[str, ...],
    all_: bool = False,
    dir_: Annotated[Path | None, click.Path(path_type=Path, file_okay=False)] = None,
) -> None:
    """List the definitions of the custom resources that add-ons read, or print them as YAML.

    Each NAME is one of the list: proreus crds podgroup elasticquota | kubectl apply -f -

    --all
        Print all definitions.
    --dir FOLDER
        Write files into this folder instead of printing.
    """
    files = definition_files()
    if unknown := [name for name in names if name not in files]:
        raise click.BadParameter(f"{', '.join(unknown)}: choose from {', '.join(files)}")
    chosen = {name: files[name] for name in (files if all_ else names)}
    if dir_ is not None:
        _write(chosen or files, dir_)
    elif chosen:
        click.echo("---\n".join(file.read_text() for file in chosen.values()), nl=False)
    else:
        _list(files)


def _list(files: dict[str, Path]) -> None:
    width = max(map(len, files))
    for name, file in files.items():
        click.echo(f"{name:<{width}}   {_resource(file)}")


def _resource(file: Path) -> str:
    import yaml

    definition: dict[str, Any] = yaml.safe_load(file.read_text())
    return f"{definition['spec']['names']['kind']}, {definition['spec']['group']}"


def _write(files: dict[str, Path], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in files.values():
        target = folder / file.name
        target.write_text(file.read_text())
        click.echo(f"wrote {target}")
