"""``proreus chart`` writes the Helm chart into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click

from proreus.process.cli.documented_options import documented_options
from proreus.process.cli.shipped import shipped_folder, write_folder


@click.command("chart", short_help="Write the Helm chart into a folder.")
@documented_options
def command(
    *,
    dir_: Annotated[Path, click.Path(path_type=Path, file_okay=False)] = Path("proreus-chart"),
) -> None:
    """Write the Helm chart of this version into a folder.

    --dir FOLDER
        Folder to write it to. [default]
    """
    write_folder(shipped_folder("deploy/chart"), dir_)
    click.echo(f"\nnext: read {dir_ / 'README.md'}")
