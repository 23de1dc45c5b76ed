"""Modules of plugins that a start does without; they are imported once pods are scheduled.

Plugins import them where they use them. That must not delay the first pod that needs one, nor fail
because no file may be opened any more.
"""

from importlib import import_module

_MODULES = (
    "proreus.plugins.dynamic_resources.filtering",
    "proreus.plugins.dynamic_resources.pre_filtering",
    "proreus.plugins.dynamic_resources.results",
)


def import_all() -> None:
    """Import them, with all that they import."""
    for module in _MODULES:
        import_module(module)
