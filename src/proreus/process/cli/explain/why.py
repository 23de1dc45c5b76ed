"""``proreus why`` is the same as ``proreus explain pod``."""

from proreus.process.cli.explain import pod_command as command

__all__ = ["command"]
