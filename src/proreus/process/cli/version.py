"""``proreus version`` prints the versions of proreus, of Kubernetes and of Python."""

from __future__ import annotations

import platform

import click

import proreus


@click.command("version")
def command() -> None:
    """Print versions."""
    from proreus.base.kubernetes_version import DEFAULT_VERSION, SUPPORTED_VERSIONS

    click.echo(f"proreus v{proreus.__version__}")
    released = [str(version) for version in SUPPORTED_VERSIONS if version <= DEFAULT_VERSION]
    click.echo(f"behaves as kube-scheduler {' or '.join(released)}")
    click.echo(f"{platform.python_implementation()} {platform.python_version()}")
