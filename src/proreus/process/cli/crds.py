"""``proreus crds`` lists, prints or writes the definitions of the custom resources in use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import click

from proreus.process.cli.documented_options import documented_options

_FOLDER = "deploy/crds"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


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
    missing: bool = False,
    kubeconfig: str = "",
    context: str | None = None,
    dir_: Annotated[Path | None, click.Path(path_type=Path, file_okay=False)] = None,
) -> None:
    """List the definitions of the custom resources that add-ons read, or print them as YAML.

    Each NAME is one of the list: proreus crds podgroup elasticquota | kubectl apply -f -

    --all
        Print all definitions.
    --missing
        Print those that the cluster lacks, of the NAMEs or of all:
        proreus crds --missing | kubectl create -f -
    --kubeconfig
        Kubeconfig, for --missing; kubectl's by default.
    --context
        Context of the kubeconfig.
    --dir FOLDER
        Write files into this folder instead of printing.
    """
    from proreus.process.cli.shipped import chosen

    files = definition_files()
    if all_ or (not names and (missing or dir_ is not None)):
        names = tuple(files)
    wanted = {name: chosen(name, files) for name in names}
    if missing:
        wanted = _missing(wanted, kubeconfig, context)
    if dir_ is not None:
        _write(wanted, dir_)
    elif wanted or missing:
        click.echo("---\n".join(file.read_text() for file in wanted.values()), nl=False)
    else:
        _list(files)


def _missing(files: dict[str, Path], kubeconfig: str, context: str | None) -> dict[str, Path]:
    """Return the files of definitions that the cluster lacks; name the others on stderr."""
    import asyncio

    resources = {name: _definition(file)["metadata"]["name"] for name, file in files.items()}
    there = asyncio.run(_served(list(resources.values()), kubeconfig, context))
    for resource in sorted(there):
        click.echo(f"{resource} is there, and is left alone", err=True)
    return {name: file for name, file in files.items() if resources[name] not in there}


async def _served(resources: list[str], kubeconfig: str, context: str | None) -> set[str]:
    """Return the definitions that the cluster has; raises ``ApiError`` if it refuses to say."""
    from proreus.base.errors import NotFound
    from proreus.client.http.session import ApiClient
    from proreus.process.cli.kubeconfig import load_credentials

    found: set[str] = set()
    credentials = await load_credentials(kubeconfig, context)
    async with ApiClient(credentials) as client:
        for resource in resources:
            try:
                await client.request("GET", f"{_DEFINITIONS}/{resource}")
            except NotFound:
                continue
            found.add(resource)
    return found


def _list(files: dict[str, Path]) -> None:
    width = max(map(len, files))
    for name, file in files.items():
        click.echo(f"{name:<{width}}   {_resource(file)}")


def _resource(file: Path) -> str:
    spec = _definition(file)["spec"]
    return f"{spec['names']['kind']}, {spec['group']}"


def _definition(file: Path) -> dict[str, Any]:
    import yaml

    definition: dict[str, Any] = yaml.safe_load(file.read_text())
    return definition


def _write(files: dict[str, Path], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in files.values():
        target = folder / file.name
        target.write_text(file.read_text())
        click.echo(f"wrote {target}")
