"""Flags as Kubernetes' Go programs parse them (spf13/pflag).

``--x``, ``--x=true`` and ``--x=false`` for booleans (never ``--x false``); ``-v 4``, ``-v=4``,
``-v4``; underscores are the same as dashes; lists are repeated or separated by commas. Error
messages and exit code 1 are pflag's too. A flag is a row of a table; its default is text and goes
through the same parser as a value from the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from proreus.base.errors import ConfigError, ProreusError
from proreus.base.similar_names import similar
from proreus.config import former_names
from proreus.config.durations import parse_duration

if TYPE_CHECKING:
    from msgspec import Struct

T = TypeVar("T", bound="Struct")

_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))


class Flag(NamedTuple):
    """A flag. One without ``has_effect`` is accepted because kube-scheduler has it.

    ``no_opt_default`` is the value of the flag if it is given without one (pflag's NoOptDefVal);
    with None it needs a value. ``choices`` are the values that it may have, any if there are none;
    ``sign`` restricts a number.
    """

    name: str
    kind: str  # one of _PARSERS, or "list", "map"
    default: str
    group: str
    help: str
    short: str = ""
    has_effect: bool = True
    no_opt_default: str | None = None
    choices: tuple[str, ...] = ()
    sign: Literal["", "positive", "not negative"] = ""

    @property
    def value_when_omitted(self) -> str | None:
        """The value of the flag if it is given without one, None if it needs one."""
        return "true" if self.kind == "bool" else self.no_opt_default


class ParsedFlags:
    """The parsed command line. ``given``: raw values by flag name, in their order."""

    def __init__(self, flags: Mapping[str, Flag], given: Mapping[str, tuple[str, ...]]) -> None:
        self.flags = flags
        self.given = given

    def __getitem__(self, name: str) -> Any:
        """Return the parsed value of a flag, or of its default."""
        return _parse(self.flags[name], self.given.get(name))

    @property
    def explicit(self) -> frozenset[str]:
        """The flags that were on the command line."""
        return frozenset(self.given)

    def texts(self) -> dict[str, str]:
        """Return every flag with its value as text, for /flagz."""
        return {name: self._text(flag) for name, flag in self.flags.items()}

    def options(self, type_: type[T], prefix: str = "", **given: Any) -> T:
        """Make a struct of options; its other fields come from the flags of their names.

        The flag of ``retry_seconds`` is ``--PREFIXretry``.
        """
        for name in set(type_.__struct_fields__).difference(given):
            given[name] = self[prefix + name.removesuffix("_seconds").replace("_", "-")]
        return type_(**given)

    def problems(self) -> Iterator[str]:
        """Yield the values that are no choice of their flag, or have the wrong sign."""
        for name, flag in self.flags.items():
            value = self[name]
            if flag.choices and value not in flag.choices:
                allowed = " and ".join(flag.choices)
                yield f'--{name}: "{value}" is not supported, allowed are {allowed}'
            elif flag.sign == "positive" and value <= 0:
                yield f"--{name}: must be greater than zero"
            elif flag.sign == "not negative" and value < 0:
                yield f"--{name}: must be zero or greater"

    def without_effect(self) -> list[str]:
        """Return the given flags that have no effect."""
        return [f"--{name}" for name in self.given if not self.flags[name].has_effect]

    def _text(self, flag: Flag) -> str:
        given = self.given.get(flag.name)
        if flag.kind == "list":
            return "[" + ",".join(_parse(flag, given)) + "]"
        if flag.kind == "map":
            return ",".join(f"{key}={value}" for key, value in _parse(flag, given).items())
        return given[-1] if given else flag.default


class FlagError(ProreusError):
    """An invalid command line."""


def parse_flags(
    flags: Mapping[str, Flag], arguments: Sequence[str], command: str
) -> ParsedFlags | None:
    """Parse the arguments of a command that is called ``command``; raises ``FlagError``.

    ``flags``: by name. Returns None where help is asked for.
    """
    shorts = {flag.short: flag for flag in flags.values() if flag.short}
    given: dict[str, list[str]] = {}
    rest = list(arguments)
    while rest:
        token = rest.pop(0)
        if token in ("-h", "--help"):
            return None
        if token == "--":
            _refuse_positional(command, rest)
            break
        # "--x false" is no value for a boolean: in Go "false" is then an argument, which
        # kube-scheduler refuses.
        if token.startswith("--"):
            flag, value = _long(flags, token, rest)
        elif token.startswith("-") and len(token) > 1:
            flag, value = _short(shorts, token, rest)
        else:
            _refuse_positional(command, [token])
        given.setdefault(flag.name, []).append(value)
    values = ParsedFlags(flags, {name: tuple(texts) for name, texts in given.items()})
    for name in given:
        values[name]  # an invalid value must fail now, not when it is first used
    return values


def _long(flags: Mapping[str, Flag], token: str, rest: list[str]) -> tuple[Flag, str]:
    name, equals, value = token.removeprefix("--").partition("=")
    flag = flags.get(name.replace("_", "-"))
    if flag is None:
        raise FlagError(f"unknown flag: --{name}{_remedy(name.replace('_', '-'), flags)}")
    if equals:
        return flag, value
    return flag, _next(
        f"--{flag.name}", rest
    ) if flag.value_when_omitted is None else flag.value_when_omitted


def _remedy(name: str, flags: Mapping[str, Flag]) -> str:
    if instead := former_names.FLAGS.get(name):
        return f"; {instead} ({former_names.PAGE})"
    meant = similar(name, flags)
    return f"; did you mean --{meant}?" if meant else ""


def _short(shorts: Mapping[str, Flag], token: str, rest: list[str]) -> tuple[Flag, str]:
    flag = shorts.get(token[1])
    if flag is None:
        raise FlagError(f"unknown shorthand flag: '{token[1]}' in {token}")
    value = token[2:].removeprefix("=")
    return flag, value or _next(f"'{token[1]}' in {token}", rest)


def _refuse_positional(command: str, tokens: Sequence[str]) -> None:
    if tokens:
        listed = " ".join(f'"{token}"' for token in tokens)
        raise FlagError(f'"{command}" does not take any arguments, got [{listed}]')


def _next(flag: str, rest: list[str]) -> str:
    if not rest:
        raise FlagError(f"flag needs an argument: {flag}")
    return rest.pop(0)


def _parse(flag: Flag, given: tuple[str, ...] | None) -> Any:
    texts = given if given is not None else (flag.default,)
    if flag.kind == "list":
        return tuple(item for text in texts for item in _items(text))
    if flag.kind == "map":
        return dict(_pair(flag, item) for text in texts for item in _pairs_in(text))
    try:
        return _PARSERS[flag.kind](texts[-1])
    except (ValueError, ConfigError) as error:
        raise FlagError(
            f'invalid argument "{texts[-1]}" for "--{flag.name}" flag: {error}'
        ) from error


def _items(text: str) -> list[str]:
    """Split at commas outside quotes; the brackets around the default of a list are removed."""
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    items, quote, start = [], "", 0
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == ",":
            items.append(text[start:position])
            start = position + 1
    items.append(text[start:])
    return [item.strip() for item in items if item.strip()]


def _pairs_in(text: str) -> list[str]:
    """Split at commas between pairs; keys may contain one (``metric,label='a,b'``)."""
    pairs, key = [], ""
    for item in _items(text):
        if "=" in item:
            pairs.append(key + item)
            key = ""
        else:
            key += f"{item},"
    return [*pairs, key] if key else pairs


def _pair(flag: Flag, item: str) -> tuple[str, str]:
    key, equals, value = item.partition("=")
    if not equals:
        raise FlagError(
            f'invalid argument "{item}" for "--{flag.name}" flag: it must look like key=value'
        )
    return key, value.strip("'\"")


def _bool(text: str) -> bool:
    if text not in _TRUE | _FALSE:
        raise ValueError(f'strconv.ParseBool: parsing "{text}": invalid syntax')
    return text in _TRUE


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f'strconv.ParseFloat: parsing "{text}": invalid syntax') from None


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "bool": _bool,
    "int": _int,
    "float": _float,
    "duration": parse_duration,
    "string": str,
}
