"""``proreus version``: the versions of proreus, of Kubernetes and of Python."""

from __future__ import annotations

import platform

import click

import proreus


@click.command("version")
def command() -> None:
    """Print versions."""
    from proreus.cli.run import KUBERNETES_VERSION

    click.echo(f"proreus v{proreus.__version__}")
    click.echo(f"behaves as kube-scheduler {KUBERNETES_VERSION}")
    click.echo(f"{platform.python_implementation()} {platform.python_version()}")
