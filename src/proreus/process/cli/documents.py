"""Prints documents for ``--output json`` and ``--output yaml``."""

from __future__ import annotations

import click
import msgspec


def echo_document(body: bytes, form: str) -> None:
    """Print a JSON document as ``json``, indented, or as ``yaml``."""
    if form == "json":
        click.echo(msgspec.json.format(body, indent=2).decode())
        return
    import yaml

    click.echo(yaml.safe_dump(msgspec.json.decode(body), sort_keys=False), nl=False)
