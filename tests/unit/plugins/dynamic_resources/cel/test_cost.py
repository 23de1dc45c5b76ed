"""Expressions that would take gigabytes or minutes take neither."""

from __future__ import annotations

import contextlib
import resource
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proreus.objects.protobuf import fields
from proreus.plugins.dynamic_resources.cel import expressions as module
from proreus.plugins.dynamic_resources.cel.cost import (
    LIMIT_EXCEEDED,
    MAX_BYTES,
    MAX_KEPT_BYTES,
    Bound,
    Unbounded,
    _Walk,
    bound_of,
    is_affordable,
)
from proreus.plugins.dynamic_resources.cel.expressions import (
    CelError,
    CELSelector,
    DeviceView,
    _checked,
    compile_selector,
)

OWN = 'device.attributes["d"]'
DEVICE = DeviceView("d", {"d": {"model": "a" * 64, "numa": 1}}, {}, False)


def nested(levels: int, by: int) -> str:
    text = '"' + "a" * 700 + '"'
    for _ in range(levels):
        text = f'{text}.replace("a", "{"a" * by}")'
    return f"{text}.size() > 5"


def quadrupled(times: int) -> str:
    text = '"a"'
    for number in range(times):
        text = f"cel.bind(v{number}, {text}, v{number} + v{number} + v{number} + v{number})"
    return f"{text}.size() > 5"


def looped(levels: int, body: str) -> str:
    for number in range(levels):
        body = f"[{', '.join('123456789')}].map(v{number}, {body})"
    return f"{body}.size() > 5"


HUGE = [
    nested(3, 700),
    nested(4, 50),
    quadrupled(14),
    looped(6, '"aaaaaaaaaa"'),
    "lists.range(1000000000).size() > 5",
    f'"%s%s%s".format([{nested(4, 50)}, "", ""]) == "x"',
]


@pytest.mark.parametrize("expression", HUGE)
def test_what_would_take_gigabytes_fails_and_takes_nothing(expression: str) -> None:
    selector = compile_selector(expression)
    assert not selector.error
    # What an apiserver accepts, in a claim of 2.8 KB for the first of these.
    assert len(expression) < 10_240
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CelError, match=LIMIT_EXCEEDED):
        selector.matches(DEVICE)
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert taken < 64 * 2**10, "kilobytes"


def doubled(text: str, times: int) -> str:
    for number in range(times):
        text = f"cel.bind(v{number}, {text}, v{number} + v{number})"
    return text


TEXT = '"' + "a" * 700 + '"'
SLOW = {
    "sort": "{0}.split('').sort().size() > 3",
    "distinct": "{0}.split('').map(x, [x]).distinct().size() > 3",
    "contains": "{0}.contains({0} + 'b')",
    "sets": "sets.intersects({0}.split(''), {0}.replace('a', 'b').split(''))",
    "loops": "{0}.split('').all(x, {0}.split('').all(y, x == y))",
    "pattern": "{0}.matches('((a?){{300}}){{3}}b')",
    "huge pattern": "{0}.matches('(a?){{1000}}(a?){{1000}}(a?){{1000}}(a?){{1000}}b')",
    "refused pattern": "{0}.split('').all(x, x.find('(\\\\pL?){{1000}}') == '')",
    "computed pattern": "{0}.matches('((a?){{300}}){{' + '3}}b')",
    "format": "'%s%.1000f'.format([{0}, 1.0]) == ''",
}


@pytest.mark.parametrize("form", SLOW.values(), ids=SLOW)
@pytest.mark.parametrize("times", range(0, 11, 2))
def test_no_evaluation_takes_half_a_second(form: str, times: int) -> None:
    selector = CELSelector(form.format(doubled(TEXT, times)))
    assert not selector.error
    before = time.process_time()
    with contextlib.suppress(CelError):
        selector.matches(DEVICE)
    assert time.process_time() - before < 0.5


def test_patterns_count_with_what_they_compile_to() -> None:
    short = f'{OWN}.model.matches("^[a-z]{{1,64}}$")'
    assert compile_selector(short).matches(DEVICE)
    long = f'{doubled(TEXT, 4)}.matches("((a?){{300}}){{3}}b")'
    with pytest.raises(CelError, match=LIMIT_EXCEEDED):
        compile_selector(long).matches(DEVICE)


def test_an_expression_is_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    walks = []

    def counting(*args: Any) -> bool:
        walks.append(args)
        return is_affordable(*args)

    monkeypatch.setattr(module, "is_affordable", counting)
    joined = CELSelector(f'[{OWN}.model, "x"].join(",") != ""')
    for model in ("a" * 20, "b" * 30, "c" * 40):
        assert joined.matches(DeviceView("d", {"d": {"model": "a" * 64, "o": model}}, {}, False))
    assert len(walks) == 1


def test_what_a_large_device_allows_depends_on_its_size() -> None:
    pairs = CELSelector(f"{OWN}.list.all(x, {OWN}.list.all(y, x.contains(y)))")
    assert pairs.matches(DeviceView("d", {"d": {"list": ["x" * 64] * 48}}, {}, False))
    with pytest.raises(CelError, match=LIMIT_EXCEEDED):
        pairs.matches(DeviceView("d", {"d": {"list": ["x" * 640] * 480}}, {}, False))


def test_bounds_of_values() -> None:
    assert bound_of("ä") == Bound(10)
    assert bound_of(b"abc") == Bound(11)
    assert bound_of(True) == Bound(8)
    assert bound_of({"a": ["x", "xyz"]}) == Bound(45, 1, Bound(28, 2, Bound(11)))
    assert bound_of(["x", "xyz"]).rounded() == Bound(32, 2, Bound(16))


# ---- bounds are never too low --------------------------------------------------------------------

TEXTS = st.sampled_from(['"a"', '"ab"', '""', '"aaaaaaaa"', f"{OWN}.model", '"a,b,c"', '"%s-%s"'])


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def call(form: str) -> st.SearchStrategy[str]:
        return st.tuples(inner, inner, inner).map(lambda t: form.format(*t))

    return st.one_of(
        *map(
            call,
            [
                "{0}.replace({1}, {2})",
                "({0} + {1})",
                "{0}.split({1}).join({2})",
                "[{0}, {1}, {2}].join({2})",
                "[{0}, {1}].map(x, x + {2}).join({1})",
                '({0} == {1} ? {1} : {2} + "x")',
                "cel.bind(b, {0}, b + {1} + b)",
                "{0}.lowerAscii().trim().upperAscii()",
                "strings.quote({0})",
                "{0}.split({1}).filter(s, s != {2}).map(s, s + s).join({1})",
                '"%s and %s".format([{0}, {1}])',
                "[[{0}], [{1}, {2}]].map(l, l.join({1})).join({0})",
            ],
        )
    )


@given(st.recursive(TEXTS, _larger, max_leaves=12))
@settings(max_examples=300, deadline=None)
def test_no_text_is_larger_than_its_bound(text: str) -> None:
    try:
        checked = _checked(f"{text}.size() >= 0").serialize()
    except RuntimeError:  # nested too deeply
        return
    if not is_affordable(checked, DEVICE.bound, ()):
        return
    walk = _Walk(DEVICE.bound)
    sizes = []
    result = _Walk.bound

    def noting(self: _Walk, expr: bytes, variables: Any) -> Any:
        bound = result(self, expr, variables)
        sizes.append(bound.size)
        return bound

    # The text is the operand of the comparison's first operand.
    [of_any] = [content for number, _, content in fields(checked) if number == 2]
    [root] = [content for number, _, content in fields(of_any) if number == 4]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Walk, "bound", noting)
        try:
            walk.bound(root, {})
        except Unbounded:
            pytest.fail("bounded a moment ago")
    largest = max(sizes)
    assert largest <= MAX_BYTES
    selector = CELSelector(f"{text}.size() <= {largest}")
    with contextlib.suppress(CelError):  # `%s` without an operand, say
        assert selector.matches(DEVICE), (text, largest)


# ---- what evaluations leave behind ---------------------------------------------------------------


LEAKING = [
    f"[{', '.join(map(str, range(200)))}].all(n, quantity(string(n)).isInteger())",
    " && ".join(['isQuantity("1")'] * 400),
    'semver("1.2.3-{}").isGreaterThan(semver("1.0.0-{}"))'.format("b" * 3_600, "a" * 3_600),
    '[semver("1.2.3-%s")].all(v, !v.isLessThan(v) && !v.isLessThan(v))' % ("a" * 6_000),
    f'cel.bind(v, semver("1.2.3-{"a" * 3_000}"), {" && ".join(["!v.isLessThan(v)"] * 18)})',
]


@pytest.mark.parametrize("expression", LEAKING)
def test_an_expression_that_would_leave_much_behind_fails(expression: str) -> None:
    with pytest.raises(CelError, match=LIMIT_EXCEEDED):
        CELSelector(expression).matches(DEVICE)


@pytest.mark.parametrize("count", [1, 2, 20])
def test_an_evaluation_leaves_little_behind(count: int) -> None:
    call = 'isQuantity("%s")' % ("9" * (9_000 // count))
    selector = CELSelector(" && ".join([call] * count))
    tracemalloc.start()
    try:
        for number in range(21):
            assert selector.matches(DEVICE)
            if not number:
                before, _ = tracemalloc.get_traced_memory()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (kept - before) / 20 < MAX_KEPT_BYTES
