"""``proreus example`` lists the examples, or writes one into a folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import click

from proreus.process.cli.documented_options import documented_options
from proreus.process.cli.shipped import chosen, shipped_folder, write_folder


@click.command("example", short_help="List the examples, or write one into a folder.")
@click.argument("name", required=False)
@documented_options
def command(
    *,
    name: str | None,
    dir_: Annotated[Path, click.Path(path_type=Path, file_okay=False)] = Path("examples"),
) -> None:
    """List the examples, or write the example NAME into a folder.

    An example is a plugin or a client with its configuration, a small cluster, and a README with
    the commands that try it.

    --dir FOLDER
        Folder to create the example's folder in. [default]
    """
    folders = example_folders()
    if name is None:
        width = max(map(len, folders))
        for each, folder in folders.items():
            click.echo(f"{each:<{width}}   {summary(folder)}")
        return
    folder = chosen(name, folders)
    target = dir_ / name
    write_folder(folder, target)
    click.echo(f"\nnext: read {target / 'README.md'}")


def example_folders() -> dict[str, Path]:
    """Return the folders of all examples, by name."""
    readmes = sorted(shipped_folder("examples").glob("*/README.md"))
    return {readme.parent.name: readme.parent for readme in readmes}


def summary(folder: Path) -> str:
    """Return the first sentence of an example's README, without Markdown's links."""
    _, paragraph, *_ = (folder / "README.md").read_text().split("\n\n")
    sentence = re.match(r".*?[.?:](?=\s|$)", " ".join(paragraph.split()))
    text = sentence[0] if sentence else paragraph
    return re.sub(r"\s*\(?\[([^]]*)\]\([^)]*\)\)?", "", text).replace("`", "")
