"""The two environments of cel-cpp that together do what Kubernetes' one does.

The *checker* has quantities, versions, addresses and the like as types of their own, and refuses
what Kubernetes refuses. Its checked expression runs in the *evaluator*, which selects overloads by
the types of values at runtime; there all these types are bytes (``values``).

cel-cpp takes the description of an environment as YAML, which can express more than its Python
classes: type parameters, optionals, and standard functions to exclude since they are redeclared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

from cel_expr_python import cel

from proreus.plugins.dynamic_resources.cel.libraries import (
    BOOL,
    BYTES,
    CIDR,
    DOUBLE,
    DYN,
    EVALUATOR_ONLY,
    FUNCTIONS,
    INT,
    IP,
    MORE_OVERLOADS,
    OPAQUE_TYPES,
    STRING,
    Function,
    Q,
    Type,
)

_EXTENSIONS = ({"name": "strings", "version": 2}, {"name": "lists"}, {"name": "sets"})
_MORE_EXTENSIONS = ({"name": "optional"}, {"name": "bindings"})
_MACROS_OF_TWO_VARIABLES = {"name": "two-var-comprehensions"}

_NUMBERS = (INT, "uint", DOUBLE)
_COMPARISONS = ("_<_", "_<=_", "_>_", "_>=_")
_OPTIONAL_OF_ANY: Type = ("optional", "T")

Overload = tuple[tuple[Type, ...], Type]

_DEVICE: dict[str, Type] = {
    "device.driver": STRING,
    "device.attributes": ("map", STRING, ("map", STRING, DYN)),
    "device.capacity": ("map", STRING, ("map", STRING, Q)),
    "device.allowMultipleAllocations": BOOL,
}
"""``device`` is not a variable, its fields are: CEL resolves ``device.driver`` as one name.

So each field has a type of its own; a map of them would have to be of type dyn.
"""

_WHOLE_DEVICE: dict[str, Type] = {"device": ("map", STRING, DYN)}


# ---- the checker -------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def checker() -> Any:
    """Return the environment that compiles expressions."""
    return _checker(_DEVICE)


@lru_cache(maxsize=1)
def lenient_checker() -> Any:
    """Return the environment for expressions that use ``device`` as a whole: a map of anything."""
    return _checker(_WHOLE_DEVICE)


def _checker(variables: dict[str, Type]) -> Any:
    described = {
        "name": "checker",
        "extensions": [*_EXTENSIONS, *_MORE_EXTENSIONS, _MACROS_OF_TWO_VARIABLES],
        "stdlib": {"exclude_functions": [{"name": name} for name in _REDECLARED]},
        "functions": [
            *(_declared(name, overloads) for name, overloads in _REDECLARED.items()),
            *(_declared_functions(FUNCTIONS)),
            _declared("optional.unwrap", [((("list", _OPTIONAL_OF_ANY),), ("list", "T"))]),
            _declared(".unwrapOpt", [((("list", _OPTIONAL_OF_ANY),), ("list", "T"))]),
        ],
        "variables": [{"name": name, **_type_yaml(kind)} for name, kind in variables.items()],
    }
    return _environment(described, MORE_OVERLOADS)


def _comparable_pairs() -> list[Overload]:
    """Return the overloads of comparisons."""
    # Kubernetes enables cross-type numeric comparisons; cel-cpp's checker does not by itself.
    pairs: list[tuple[Type, ...]] = [(one, two) for one in _NUMBERS for two in _NUMBERS]
    same = (BOOL, STRING, BYTES, "duration", "timestamp")
    return [(pair, BOOL) for pair in [*pairs, *((kind, kind) for kind in same)]]


def _to_string() -> list[Overload]:
    kinds = (*_NUMBERS, STRING, BOOL, BYTES, "duration", "timestamp", IP, CIDR)
    return [((kind,), STRING) for kind in kinds]


_REDECLARED: dict[str, list[Overload]] = {
    "string": _to_string(),
    **{name: _comparable_pairs() for name in _COMPARISONS},
}
"""Standard functions that have more overloads in Kubernetes; excluded from the standard library."""


def _declared_functions(functions: Iterable[Function]) -> list[dict[str, Any]]:
    """Return declarations of functions, all overloads of a name in one."""
    # A leading dot marks member functions here; a name may have both kinds of overloads.
    overloads: dict[str, list[dict[str, Any]]] = {}
    for function in functions:
        name = f".{function.name}" if function.member else function.name
        [overload] = _declared(name, [(function.parameters, function.result)])["overloads"]
        overloads.setdefault(function.name, []).append(overload)
    return [{"name": name, "overloads": group} for name, group in overloads.items()]


def _declared(name: str, overloads: Sequence[Overload]) -> dict[str, Any]:
    plain = name.removeprefix(".")
    declared = []
    for parameters, result in overloads:
        spelled = [_type_yaml(kind) for kind in parameters]
        declared.append(
            {
                "id": f"{name} of {parameters}",
                **({"target": spelled.pop(0)} if name != plain else {}),
                "args": spelled,
                "return": _type_yaml(result),
            }
        )
    return {"name": plain, "overloads": declared}


def _type_yaml(kind: Type) -> dict[str, Any]:
    """Return a type as in cel-cpp's YAML."""
    if isinstance(kind, tuple):
        name, *parameters = kind
        outer = "optional_type" if name == "optional" else name
        return {"type_name": outer, "params": [_type_yaml(inner) for inner in parameters]}
    if kind.isupper():
        return {"type_name": kind, "is_type_param": True}
    return {"type_name": OPAQUE_TYPES.get(kind, kind)}


# ---- the evaluator -----------------------------------------------------------------------------


@lru_cache(maxsize=1)
def functions_in_python() -> frozenset[str]:
    """Return the names of functions that have an overload in Python."""
    return frozenset(one.name for one in (*FUNCTIONS, *MORE_OVERLOADS, *EVALUATOR_ONLY))


@lru_cache(maxsize=1)
def evaluator() -> Any:
    """Return the environment that evaluates expressions compiled by a checker."""
    # Compiled expressions of both checkers run here, so it has the variables of both.
    variables = _DEVICE | _WHOLE_DEVICE
    described = {
        "name": "evaluator",
        "extensions": [*_EXTENSIONS, *_MORE_EXTENSIONS],
        "variables": [
            {"name": name, **_type_yaml(_at_runtime(kind))} for name, kind in variables.items()
        ],
    }
    return _environment(described, (*FUNCTIONS, *MORE_OVERLOADS, *EVALUATOR_ONLY))


def _at_runtime(kind: Type) -> Type:
    if isinstance(kind, tuple):
        return (kind[0], *map(_at_runtime, kind[1:]))
    return BYTES if kind in OPAQUE_TYPES else kind


_RUNTIME_KINDS = {
    BOOL: cel.Type.BOOL,
    INT: cel.Type.INT,
    STRING: cel.Type.STRING,
    BYTES: cel.Type.BYTES,
    DYN: cel.Type.DYN,
    "list": cel.Type.List(cel.Type.DYN),
    "map": cel.Type.Map(cel.Type.DYN, cel.Type.DYN),
}


def _environment(described: dict[str, Any], functions: Iterable[Function]) -> Any:
    """Return an environment; the functions may be overloads of names in cel-cpp's own libraries."""
    # As one extension: functions in the description itself are declared only, without code.
    by_name = sorted(functions, key=lambda function: function.name)
    library = [
        cel.FunctionDecl(name, list(_overloads(group)))
        for name, group in groupby(by_name, key=lambda function: function.name)
    ]
    return cel.NewEnv(
        config=cel.NewEnvConfigFromYaml(json.dumps(described)),
        extensions=[cel.CelExtension("kubernetes", library)],
    )


def _overloads(functions: Iterable[Function]) -> Iterable[cel.Overload]:
    """Yield the overloads of one name; those that are the same at runtime once."""
    # ``quantity.compareTo`` and ``semver.compareTo`` both take two bytes: one function serves both,
    # and finds out by the tags of the values.
    seen: set[tuple[Any, ...]] = set()
    for function in functions:
        kinds = tuple(_kind(parameter) for parameter in function.parameters)
        if (function.member, kinds) not in seen:
            seen.add((function.member, kinds))
            yield cel.Overload(
                f"{function.name} {'of' if function.member else 'from'} {kinds}",
                cel.Type.DYN,
                [_RUNTIME_KINDS[kind] for kind in kinds],
                is_member=function.member,
                impl=function.impl,
            )


def _kind(parameter: Type) -> str:
    kind = parameter[0] if isinstance(parameter, tuple) else parameter
    assert isinstance(kind, str)
    return BYTES if kind in OPAQUE_TYPES else kind
