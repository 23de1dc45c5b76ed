"""Plugin classes of a few words, for tests of those who ask plugins."""

from __future__ import annotations

from types import FunctionType

from proreus.framework.plugin import Plugin

_WAITS = frozenset({"post_filter", "pre_bind", "bind"})
_TRAITS = frozenset({"row_local", "allow_parallel"})


def plugin(name: str, *bases: type[Plugin], **answers: object) -> type[Plugin]:
    """Return a plugin class; an answer may be a value, an exception, or a function of self."""
    return type(name, bases, {key: _method(key, answer) for key, answer in answers.items()})


def _method(name: str, answer: object) -> object:
    if name in _TRAITS or isinstance(answer, FunctionType):
        return answer

    def give(self: Plugin, *_: object) -> object:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def give_later(self: Plugin, *_: object) -> object:
        return give(self)

    return give_later if name in _WAITS else give
