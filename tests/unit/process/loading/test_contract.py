"""Classes that violate the contract of their extension points are rejected with their line."""

from __future__ import annotations

import pytest

from proreus.framework.extension_points import POINTS
from proreus.plugins import IN_TREE_PLUGINS
from proreus.process.loading.contract import contract_violations
from proreus.process.loading.load import PluginSources, load

HEADER = "from proreus.framework import *\nfrom proreus.framework import plugin\n"


def refusals(tmp_path, source: str) -> list[tuple[int, str]]:
    """Return (line, why), lines counted from the source's own first one."""
    (tmp_path / "a.py").write_text(HEADER + source)
    loaded_plugins = load(PluginSources(folders=(str(tmp_path),), packages=False))
    found = []
    for one in loaded_plugins.refusals:
        file, _, line = one.place.rpartition(":")
        assert file == f"{tmp_path}/a.py"
        found.append((int(line) - HEADER.count("\n"), one.why))
    assert bool(found) != bool(loaded_plugins.out_of_tree)
    return found


@pytest.mark.parametrize("plugin", IN_TREE_PLUGINS, ids=lambda plugin: plugin.name)
def test_plugins_of_the_tree_keep_the_contract(plugin):
    assert list(contract_violations(plugin)) == []


@pytest.mark.parametrize(
    ("source", "line", "why"),
    [
        (
            "class A(FilterPlugin):\n    def filter(self, state, pod): ...",
            2,
            "filter must take (self, state, pod, node), it takes (self, state, pod)",
        ),
        (
            "class A(FilterPlugin):\n\n    def filter(self, state, pod, node, more): ...",
            3,
            "filter must take (self, state, pod, node), it takes (self, state, pod, node, more)",
        ),
        (
            "class A(FilterPlugin):\n    @staticmethod\n    def filter(pod, node): ...",
            2,
            "filter must take (self, state, pod, node), it takes (pod, node)",
        ),
        (
            "class A(PermitPlugin):\n    async def permit(self, state, pod, node_name): ...",
            2,
            "permit must be def, not async def: nothing may wait at this point",
        ),
        (
            "class A(PreBindPlugin):\n    def pre_bind(self, state, pod, node_name): ...",
            2,
            "pre_bind must be async def, not def",
        ),
        (
            "class A(PostBindPlugin, BackgroundPlugin):\n"
            "    def post_bind(self, state, pod, node_name): ...\n"
            "    def run_in_background(self): ...",
            3,
            "run_in_background must be async def, not def",
        ),
        (
            "class A(PreEnqueuePlugin, FeasibleFilterPlugin):\n"
            "    def pre_enqueue(self, pod): ...\n"
            "    def filter_feasible(self, state, pod, verdicts): ...",
            3,
            "filter_feasible must take (self, state, pod, feasible, verdicts), it takes (self, ",
        ),
        (
            "class A(PreEnqueuePlugin, PlacementFeasiblePlugin):\n"
            "    def pre_enqueue(self, pod): ...\n"
            "    async def placement_feasible(self, state, group, progress): ...",
            3,
            "placement_feasible must be def, not async def: nothing may wait at this point",
        ),
        (
            "class A(PodGroupPostFilterPlugin):\n"
            "    def pod_group_post_filter(self, state, group, schedule): ...",
            2,
            "pod_group_post_filter must be async def, not def",
        ),
        (
            "class A(BindPlugin):\n    bind = 3",
            2,
            "bind must be a method, async def bind(self, state, pod, node_name), not 3",
        ),
        (
            "class A(PreEnqueuePlugin):\n    pass",
            1,
            "class A is a PreEnqueuePlugin and must define def pre_enqueue(self, pod)",
        ),
        (
            "class A(PermitPlugin):\n"
            "    def __init__(self, handle): ...\n"
            "    def permit(self, state, pod, node_name): ...",
            2,
            "__init__ must take (self, args, handle), it takes (self, handle)",
        ),
        (
            "class A(FilterPlugin):\n    name = ''\n    def filter(self, state, pod, node): ...",
            2,
            "name must be a printable text, neither empty nor *, not ''",
        ),
        (
            "class A(FilterPlugin):\n"
            "    def filter(self, state, pod, node): ...\n"
            "    row_local: object = 'yes'",
            3,
            "row_local must be True or False, not 'yes'",
        ),
        (
            "class A(FilterPlugin):\n"
            "    class Args: ...\n"
            "    def filter(self, state, pod, node): ...",
            1,
            "Args must be a class that inherits from PluginArgs, or None, not ",
        ),
    ],
)
def test_violations_are_reported_with_their_line(tmp_path, source, line, why):
    ((found_line, found),) = refusals(tmp_path, source)
    assert (found_line, found[: len(why)]) == (line, why)


def test_the_error_of_a_plugin_without_extension_point_lists_them(tmp_path):
    ((line, why),) = refusals(tmp_path, "class A(plugin.Plugin):\n    pass")
    assert (line, why.partition(": ")[0]) == (1, "class A inherits no extension point")
    assert all(base.__name__ in why for base in POINTS.values())


def test_a_class_with_background_work_alone_is_told_to_inherit_a_point(tmp_path):
    source = "class A(plugin.BackgroundPlugin):\n    async def run_in_background(self): ..."
    ((line, why),) = refusals(tmp_path, source)
    text = "beside BackgroundPlugin, which is called where one is enabled: PreEnqueuePlugin, "
    assert (line, text in why) == (1, True)


def test_a_class_that_only_lacks_its_base_class_is_rejected_and_other_classes_are_ignored(tmp_path):
    forgot = "class A:\n    def score(self, state, pod, node): ..."
    other = "class Filters:\n    def filter(self, nodes): ..."
    plugin = "class B(ScorePlugin):\n    def score(self, state, pod, node): ..."
    (tmp_path / "a.py").write_text("\n".join((HEADER, other, forgot, plugin)))
    loaded_plugins = load(PluginSources(folders=(str(tmp_path),), packages=False))
    assert [*loaded_plugins.out_of_tree] == ["B"]
    (refusal,) = loaded_plugins.refusals
    assert refusal.why.startswith("class A must inherit from an extension point: ")
    assert refusal.names == {"A"}


@pytest.mark.parametrize(
    ("method", "base"),
    [
        ("def score(self, state, pod, node): ...", "ScorePlugin"),
        ("def normalize(self, state, pod, scores): ...", "ScorePlugin"),
        ("async def pre_bind(self, state, pod, node_name): ...", "PreBindPlugin"),
        ("async def run_in_background(self): ...", "BackgroundPlugin"),
        ("async def fetch_filter(self, state, pod, rows): ...", "FetchingPlugin"),
        ("def score(self, rack): ...", ""),
        ("score = 3", ""),
    ],
)
def test_a_method_of_a_point_that_is_not_inherited_would_never_be_called(tmp_path, method, base):
    source = f"class A(FilterPlugin):\n    def filter(self, state, pod, node): ...\n    {method}"
    expected = [
        f"{method.split('(')[0].split()[-1]} is a method of {base}, which class A does not inherit:"
        " it would never be called; inherit it, or rename the method"
    ]
    assert refusals(tmp_path, source) == [(3, text) for text in expected if base]


SCORE = "    def score(self, state, pod, node): ...\n"


@pytest.mark.parametrize(
    ("attribute", "right"),
    [
        (
            "def normalize_score(self, state, pod, scores): ...",
            "normalize(self, state, pod, scores)",
        ),
        (
            "def NormalizeScore(self, state, pod, scores): ...",
            "normalize(self, state, pod, scores)",
        ),
        ("def ScoreExtensions(self): ...", "normalize(self, state, pod, scores)"),
        ("def normalise(self, state, pod, scores): ...", "normalize(self, state, pod, scores)"),
        ("def un_reserve(self, a, b, c): ...", "unreserve(self, state, pod, node_name)"),
        ("def AddPod(self, a, b, c, d): ...", "add_pod(self, state, pod, added, node)"),
        ("def PreFilterExtensions(self): ...", "add_pod(self, state, pod, added, node)"),
        ("def EventsToRegister(self): ...", "events_to_register(self)"),
        ("def SignPod(self, pod): ...", "sign(self, pod)"),
        ("rowLocal = True", "row_local"),
    ],
)
def test_a_misnamed_method_or_flag_is_refused_with_the_right_name(tmp_path, attribute, right):
    source = f"class A(ScorePlugin, ReservePlugin, PreFilterPlugin):\n{SCORE}    {attribute}\n"
    source += "    def pre_filter(self, state, pod, nodes): ..."
    name = attribute.split("(")[0].split("=")[0].split()[-1]
    text = f"{name} has no effect: it must be called {right}"
    assert refusals(tmp_path, source) == [(3, text)]


def test_a_misnamed_method_of_another_base_class_names_that_class(tmp_path):
    source = f"class A(ScorePlugin):\n{SCORE}    def PostBind(self, state, pod, node_name): ..."
    assert refusals(tmp_path, source) == [
        (
            3,
            "PostBind has no effect: it must be called post_bind(self, state, pod, node_name), "
            "and class A must inherit from PostBindPlugin",
        )
    ]


@pytest.mark.parametrize(
    "helper",
    [
        "def scores_of(self, state, pod, node): ...",
        "def Score(self, node): ...",
        "def _normalize_score(self, scores): ...",
        "row_locals = {}",
    ],
)
def test_helpers_have_the_names_that_their_author_likes(tmp_path, helper):
    assert refusals(tmp_path, f"class A(ScorePlugin):\n{SCORE}    {helper}") == []


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("self.seen = {}", ["self.args and self.handle"]),
        ("self.args = args", ["self.handle"]),
        ("self.args, self.handle = args, handle", []),
        ("super().__init__(args, handle)", []),
        ("BindPlugin.__init__(self, args, handle)", []),
    ],
)
def test_a_constructor_that_forgets_its_base_is_refused(tmp_path, body, why):
    source = (
        f"class A(BindPlugin):\n    def __init__(self, args, handle):\n        {body}\n"
        "    async def bind(self, state, pod, node_name):\n"
        "        return self.handle.clock if self.args else None"
    )
    expected = [
        (2, f"__init__ must call super().__init__(args, handle), for {what}") for what in why
    ]
    assert refusals(tmp_path, source) == expected


def test_a_constructor_may_forget_what_nothing_reads(tmp_path):
    source = (
        "class A(BindPlugin):\n    def __init__(self, args, handle):\n        self.seen = {}\n"
        "    async def bind(self, state, pod, node_name): ..."
    )
    assert refusals(tmp_path, source) == []


def test_all_violations_are_reported_at_once(tmp_path):
    source = (
        "class A(FilterPlugin, ScorePlugin):\n"
        "    def filter(self): ...\n"
        "    async def score(self, state, pod, node): ..."
    )
    assert [line for line, _ in refusals(tmp_path, source)] == [2, 3]


@pytest.mark.parametrize(
    "method",
    [
        "def filter(self, state, pod, node): ...",
        "def filter(self, cycle_state, the_pod, info, verbose=False): ...",
        "def filter(self, *everything): ...",
        "@staticmethod\n    def filter(state, pod, node): ...",
        "@classmethod\n    def filter(cls, state, pod, node): ...",
        "filter = print",
    ],
)
def test_how_a_method_takes_its_arguments_is_free(tmp_path, method):
    assert refusals(tmp_path, f"class A(FilterPlugin):\n    {method}") == []


def test_every_extension_point_asks_for_a_method():
    """A base class that could be inherited without defining anything is one that may stay empty."""
    optional, refused_by_itself = {"reserve"}, {"filter", "score"}
    for point, base in POINTS.items():
        if point in refused_by_itself:
            with pytest.raises(TypeError, match="must define"):
                type("Empty", (base,), {})
        else:
            faults = list(contract_violations(type("Empty", (base,), {})))
            assert bool(faults) == (point not in optional), point
