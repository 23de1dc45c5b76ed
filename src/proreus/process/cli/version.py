"""``proreus version`` prints the versions of proreus, of Kubernetes and of Python."""

from __future__ import annotations

import platform

import click

import proreus


@click.command("version")
def command() -> None:
    """Print versions."""
    from proreus.base.kubernetes_version import SUPPORTED_VERSIONS

    click.echo(f"proreus v{proreus.__version__}")
    click.echo(f"behaves as kube-scheduler {' or '.join(map(str, SUPPORTED_VERSIONS))}")
    click.echo(f"{platform.python_implementation()} {platform.python_version()}")
