"""The names of a new plugin, its module and its package."""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from typing import NamedTuple, Self

_CAMEL_CASE = re.compile(r"[A-Z][a-z0-9]*(?:[A-Z]+[a-z0-9]*)*")
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z]+[0-9]*")
_LONGEST = 50


class InvalidPluginName(ValueError):
    """A name that a plugin cannot have; the message has the reason and a suggestion."""


class Names(NamedTuple):
    """``plugin``: GpuHeadroom. ``module``: gpu_headroom. ``package``: gpu-headroom."""

    plugin: str
    module: str
    package: str

    @classmethod
    def of(cls, plugin: str) -> Self:
        """Derive all names from the plugin's; raises ``InvalidPluginName``."""
        if not _CAMEL_CASE.fullmatch(plugin):
            words = re.findall(r"[A-Za-z0-9]+", plugin)
            better = "".join(word[0].upper() + word[1:] for word in words).lstrip("0123456789")
            hint = f", like {better}" if _CAMEL_CASE.fullmatch(better) else ", like GpuHeadroom"
            raise InvalidPluginName(f"{plugin!r} is not CamelCase, letters and digits only{hint}")
        if len(plugin) > _LONGEST:
            raise InvalidPluginName(f"{plugin!r} has more than {_LONGEST} letters")
        words = [word.lower() for word in _WORD.findall(plugin)]
        module = "_".join(words)
        if keyword.iskeyword(module) or _is_there(module):
            raise InvalidPluginName(
                f"the module {module!r} would hide one of that name; add a word"
            )
        _refuse_known(plugin)
        return cls(plugin, module, "-".join(words))


def _is_there(module: str) -> bool:
    """Return whether a module can be imported; a mere folder of that name does not count."""
    if module in sys.stdlib_module_names:
        return True
    spec = importlib.util.find_spec(module)
    return spec is not None and spec.origin is not None


def _refuse_known(plugin: str) -> None:
    from proreus import framework
    from proreus.plugins import IN_TREE_PLUGINS

    if any(in_tree.name == plugin for in_tree in IN_TREE_PLUGINS):
        raise InvalidPluginName(
            f"{plugin} is the name of a plugin that proreus has; choose another"
        )
    if hasattr(framework, plugin) or plugin in ("Args", "Harness"):
        raise InvalidPluginName(f"{plugin} is a name that the plugin's code needs; choose another")
