"""``proreus why``: the same as ``proreus explain pod``."""

from proreus.cli.explain import pod_command as command

__all__ = ["command"]
