"""The three sources of plugins, and files that cannot be used."""

from __future__ import annotations

import hashlib
import importlib
import os
import py_compile
import sys
from pathlib import Path

import pytest

from proreus.base.errors import ConfigError
from proreus.config.load import load as load_config
from proreus.plugins import IN_TREE_PLUGINS
from proreus.process.loading.load import ENTRY_POINTS, PluginSources, add_ons, load

FILTER = """\
from proreus.framework.plugin import FilterPlugin

class {name}(FilterPlugin):
    \"\"\"Takes every node.\"\"\"

    def filter(self, state, pod, node):
        return None
"""


def folder(tmp_path: Path, **files: str) -> PluginSources:
    for name, source in files.items():
        (tmp_path / f"{name}.py").write_text(source)
    return PluginSources(folders=(str(tmp_path),), packages=False)


def refused(loaded_plugins) -> list[tuple[str, str]]:
    return [(one.place, one.why) for one in loaded_plugins.refusals]


@pytest.fixture
def importable(tmp_path, monkeypatch):
    """A folder on sys.path for modules that are given by name; they are forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(
            sys.modules[name].__file__
        ):
            del sys.modules[name]


# ---- folders -----------------------------------------------------------------------------------


def test_without_sources_there_is_what_comes_with_proreus():
    loaded_plugins = load(PluginSources(packages=False))
    assert loaded_plugins.found.keys() == {plugin.name for plugin in IN_TREE_PLUGINS}
    assert loaded_plugins.registry.names() == loaded_plugins.found.keys() | add_ons().keys()
    assert (loaded_plugins.out_of_tree, loaded_plugins.refusals) == ({}, ())
    assert str(loaded_plugins.found["NodeName"].origin) == "in-tree"


def test_a_folder_brings_every_plugin_class_that_its_files_define(tmp_path):
    more = "\nclass _Hidden(FilterPlugin):\n    def filter(self, state, pod, node): ...\n"
    sources = folder(tmp_path, a=FILTER.format(name="A") + more, b=FILTER.format(name="B"))
    (tmp_path / "notes.txt").write_text("not Python")
    (tmp_path / ".hidden.py").write_text("1 / 0")
    loaded_plugins = load(sources)
    assert loaded_plugins.refusals == ()
    assert {n: str(f.origin) for n, f in loaded_plugins.out_of_tree.items()} == {
        "A": f"{tmp_path}/a.py:3",
        "B": f"{tmp_path}/b.py:3",
    }
    assert loaded_plugins.registry["A"].__module__ != loaded_plugins.registry["B"].__module__


@pytest.mark.parametrize(
    "statement",
    [
        "import _words; WORD = _words.WORD",
        "from _words import WORD",
        "from . import _words; WORD = _words.WORD",
        "from ._words import WORD",
        "def word():\n    import _words as w\n    return w.WORD\nWORD = word()",
    ],
)
def test_files_of_a_folder_import_each_other_and_an_underscore_hides_a_file(tmp_path, statement):
    words = FILTER.format(name="NotSeen") + "\nWORD = 'hello'\n"
    loaded_plugins = load(
        folder(tmp_path, _words=words, a=f"{statement}\n{FILTER.format(name='A')}")
    )
    assert (loaded_plugins.refusals, list(loaded_plugins.out_of_tree)) == ((), ["A"])
    module = sys.modules[loaded_plugins.registry["A"].__module__]
    assert module.WORD == "hello"
    assert "_words" not in sys.modules


def test_a_class_that_a_file_imports_from_its_neighbour_is_not_found_twice(tmp_path):
    sources = folder(tmp_path, a=FILTER.format(name="A"), b="from a import A\n")
    loaded_plugins = load(sources)
    assert (loaded_plugins.refusals, list(loaded_plugins.out_of_tree)) == ((), ["A"])


def test_the_standard_library_is_not_hidden_by_a_file(tmp_path):
    sources = folder(tmp_path, json="", a="import json\njson.dumps\n" + FILTER.format(name="A"))
    assert load(sources).refusals == ()


def test_two_folders_may_have_files_of_the_same_name(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    for name in ("one", "two"):
        words = f"NAME = '{name}'"
        folder(
            tmp_path / name, words=words, a=f"from words import NAME\n{FILTER}".format(name=name)
        )
    sources = PluginSources(folders=(str(tmp_path / "one"), str(tmp_path / "two")), packages=False)
    loaded_plugins = load(sources)
    assert loaded_plugins.refusals == ()
    for name in ("one", "two"):
        assert name == sys.modules[loaded_plugins.registry[name].__module__].NAME


def test_a_mounted_config_map_is_read_through_its_links(tmp_path):
    version = tmp_path / "..2026_01_01"
    version.mkdir()
    (version / "a.py").write_text(FILTER.format(name="A"))
    (tmp_path / "..data").symlink_to(version.name)
    (tmp_path / "a.py").symlink_to("..data/a.py")
    loaded_plugins = load(PluginSources(folders=(str(tmp_path),), packages=False))
    assert loaded_plugins.refusals == ()
    assert str(loaded_plugins.out_of_tree["A"].origin) == f"{tmp_path}/a.py:3"


def test_a_second_load_is_fresh_and_leaves_the_first_one_alone(tmp_path):
    words, plugin = (
        "WORD = 1",
        f"import words\n{FILTER.format(name='A')}\nlatest = lambda: words.WORD",
    )
    first = load(folder(tmp_path, words=words, a=plugin))
    # the same size within the same second: a time stamp would not differ
    second = load(folder(tmp_path, words="WORD = 2"))
    modules = [sys.modules[one.registry["A"].__module__] for one in (first, second)]
    assert [module.latest() for module in modules] == [1, 2]
    assert first.registry["A"] is not second.registry["A"]
    first.release()
    assert modules[0].__name__ not in sys.modules
    assert [module.latest() for module in modules] == [1, 2]
    assert modules[1].__name__ in sys.modules
    assert list(tmp_path.glob("__pycache__")) == []


def test_a_broken_file_is_refused_with_its_line_and_the_others_are_there(tmp_path):
    loaded_plugins = load(
        folder(
            tmp_path,
            absent="import os\nimport there_is_no_such_module\n",
            cut_off="import asyncio\nraise asyncio.CancelledError\n",
            broken="x = 1\nclass Broken(:\n",
            ends="raise SystemExit(3)\n",
            good=FILTER.format(name="Good"),
            neighbour="\nimport absent\n",
            raising="def f():\n    return 1 / 0\nf()\n",
            unfinished="from proreus.framework.plugin import FilterPlugin\n"
            "class Unfinished(FilterPlugin):\n    pass\n",
        )
    )
    assert list(loaded_plugins.out_of_tree) == ["Good"]
    absent = "cannot be imported: ModuleNotFoundError: No module named 'there_is_no_such_module'"
    assert refused(loaded_plugins) == [
        (f"{tmp_path}/absent.py:2", absent),
        (f"{tmp_path}/broken.py:2", "cannot be imported: SyntaxError: invalid syntax"),
        (f"{tmp_path}/cut_off.py:2", "cannot be imported: CancelledError"),
        (f"{tmp_path}/ends.py:1", "cannot be imported: SystemExit: 3"),
        (f"{tmp_path}/absent.py:2", absent),
        (
            f"{tmp_path}/raising.py:2",
            "cannot be imported: ZeroDivisionError: division by zero",
        ),
        (
            f"{tmp_path}/unfinished.py:2",
            "cannot be imported: TypeError: Unfinished must define filter or filter_all",
        ),
    ]


def test_a_file_that_cannot_be_read_is_refused_alone(tmp_path, monkeypatch):
    read = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.name == "secret.py":
            raise PermissionError(13, "Permission denied")
        if path.name == "gone.py":
            raise FileNotFoundError(2, "No such file or directory")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    sources = folder(tmp_path, good=FILTER.format(name="Good"), secret="", gone="")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "dangling.py").symlink_to("nowhere")
    loaded_plugins = load(sources)
    assert list(loaded_plugins.out_of_tree) == ["Good"]
    assert refused(loaded_plugins) == [
        (f"{tmp_path}/secret.py", "cannot be read: Permission denied")
    ]


def test_a_folder_that_is_not_there_is_refused():
    loaded_plugins = load(PluginSources(folders=("/nowhere",), packages=False))
    assert str(loaded_plugins.refusals[0]) == (
        "/nowhere: cannot be read: No such file or directory; "
        "it must be a folder with .py files (--plugin-dir /nowhere)"
    )


def test_a_plugin_with_a_name_in_use_is_rejected(tmp_path):
    in_tree = FILTER.format(name="Mine").replace("    def", "    name = 'NodeName'\n\n    def")
    sources = folder(
        tmp_path, a=FILTER.format(name="Twice"), b=FILTER.format(name="Twice"), c=in_tree
    )
    loaded_plugins = load(sources)
    assert loaded_plugins.found["Twice"].origin.file == f"{tmp_path}/a.py"
    (twice_place, twice), (_, taken) = refused(loaded_plugins)
    assert twice_place == f"{tmp_path}/b.py:3"
    assert f"another plugin ({tmp_path}/a.py:3);" in twice
    assert taken.startswith('class Mine: the name "NodeName" is that of another plugin (in-tree, ')
    problems = loaded_plugins.problems_with({"NodeName", "Twice", "NodePorts"})
    assert [problem.partition(":")[0] for problem in problems] == [
        "plugin Twice cannot be used",
        "plugin NodeName cannot be used",
    ]
    assert loaded_plugins.problems_with({"NodePorts"}) == []


# ---- modules -----------------------------------------------------------------------------------


def test_a_module_is_given_by_name(importable):
    (importable / "loading_one.py").write_text(FILTER.format(name="One"))
    loaded_plugins = load(PluginSources(("loading_one:One",), packages=False))
    assert loaded_plugins.refusals == ()
    assert loaded_plugins.requested_names == ("One",)
    assert str(loaded_plugins.out_of_tree["One"].origin) == f"{importable}/loading_one.py:3"
    enabled = loaded_plugins.default_plugins().enabled_names()
    assert enabled == {"One"}


def test_a_module_and_its_neighbours_are_imported_anew(importable):
    package = importable / "loading_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "words.py").write_text("WORD = 1")
    source = "from loading_package.words import WORD\n" + FILTER.format(name="Two")
    (package / "two.py").write_text(source)
    sources = PluginSources(("loading_package.two:Two",), packages=False)
    first = load(sources).registry["Two"]
    (package / "words.py").write_text("WORD = 2")
    second = load(sources).registry["Two"]
    assert (first.filter.__globals__["WORD"], second.filter.__globals__["WORD"]) == (1, 2)
    (package / "two.py").write_text("1 / 0")
    broken = load(sources)
    assert refused(broken)[0][0] == f"{package}/two.py:1"
    assert sys.modules["loading_package.two"].Two is second


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("nothing", '"nothing" must look like module:Class'),
        (":Class", '":Class" must look like module:Class'),
        (
            "there_is_no_such_module:X",
            "cannot be imported: ModuleNotFoundError: No module named 'there_is_no_such_module'; "
            "it must be installed, in PYTHONPATH or in the working directory",
        ),
        ("json:X", "module json has no class X; it defines no plugin"),
        (
            "proreus.plugins.node_name:Name",
            "module proreus.plugins.node_name has no class Name; its plugins are NodeName",
        ),
        ("json:dumps", "it must be a class, not function"),
    ],
)
def test_a_module_that_is_no_good_is_refused(given, why):
    loaded_plugins = load(PluginSources((given,), packages=False))
    assert [one.why for one in loaded_plugins.refusals] == [why]
    assert len(loaded_plugins.problems_with(loaded_plugins.requested_names)) == 1


def test_modules_of_the_scheduler_itself_are_not_imported_again():
    before = dict(sys.modules)
    load(PluginSources(("json:X", "proreus.plugins.node_name:X"), packages=False))
    for name in ("json", "json.decoder", "proreus.plugins.node_name"):
        assert sys.modules[name] is before[name]


# ---- packages ----------------------------------------------------------------------------------


@pytest.fixture
def installed(importable):
    """A distribution with entry points, as pip would leave it."""

    def install(entry_points: str) -> None:
        info = importable / "gpu_tools-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gpu-tools\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{entry_points}\n")
        importlib.invalidate_caches()

    return install


def test_entry_points_of_installed_packages_are_found(installed, importable):
    (importable / "gpu_tools.py").write_text(FILTER.format(name="Gpu"))
    installed("Gpu = gpu_tools:Gpu\nGone = gpu_tools:Gone\nAway = gpu_tools_away:Away")
    loaded_plugins = load(PluginSources())
    assert str(loaded_plugins.out_of_tree["Gpu"].origin) == "gpu-tools 1.2"
    sources = [one.source for one in loaded_plugins.refusals]
    assert sources == [
        'package gpu-tools 1.2, entry point "Gone"',
        'package gpu-tools 1.2, entry point "Away"',
    ]
    assert "Gpu" not in load(PluginSources(packages=False)).registry


def test_a_package_with_unreadable_entry_points_does_not_affect_others(installed, importable):
    (importable / "gpu_tools.py").write_text(FILTER.format(name="Gpu"))
    installed("Gpu = gpu_tools:Gpu")
    for name, entry_points in (("latin", b"[x]\n\xe9 = a:b\n"), ("short", b"[x]\nnothing\n")):
        info = importable / f"{name}-3.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 3\n")
        (info / "entry_points.txt").write_bytes(entry_points)
    (importable / "nameless-3.dist-info").mkdir()
    (importable / "nameless-3.dist-info" / "METADATA").write_bytes(b"Name: \xe9\n")
    (importable / "nameless-3.dist-info" / "entry_points.txt").write_bytes(b"\xe9")
    importlib.invalidate_caches()
    loaded_plugins = load(PluginSources())
    assert "Gpu" in loaded_plugins.out_of_tree
    nameless, latin, short = sorted(str(one) for one in loaded_plugins.refusals)
    assert latin.startswith("package latin: its entry points cannot be read: UnicodeDecodeError")
    assert short.startswith("package short: its entry points cannot be read: TypeError")
    assert str(importable) in nameless


def test_the_first_package_of_a_name_counts(installed, importable, tmp_path, monkeypatch):
    installed("Gpu = gpu_tools:Gpu")
    (tmp_path / "later" / "gpu_tools-1.1.dist-info").mkdir(parents=True)
    info = tmp_path / "later" / "gpu_tools-1.1.dist-info"
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gpu-tools\nVersion: 1.1\n")
    (info / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\nOld = gpu_tools:Old\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "later")])
    sources = [one.source for one in load(PluginSources()).refusals]
    assert sources == ['package gpu-tools 1.2, entry point "Gpu"']


def test_the_same_class_by_two_ways_is_one_plugin(installed, importable):
    (importable / "gpu_tools.py").write_text(FILTER.format(name="Gpu"))
    installed("Gpu = gpu_tools:Gpu")
    loaded_plugins = load(PluginSources(("gpu_tools:Gpu",)))
    assert loaded_plugins.refusals == ()
    assert loaded_plugins.found["Gpu"].origin.way == "module"


# ---- what a configuration makes of it ----------------------------------------------------------

CONFIG = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
}


def configuration(loaded_plugins, *, enabled="", args=None):
    profile = {}
    if enabled:
        profile["plugins"] = {"multiPoint": {"enabled": [{"name": enabled}]}}
    if args is not None:
        profile["pluginConfig"] = [{"name": enabled, "args": args}]
    return load_config({**CONFIG, "profiles": [profile]}, loaded_plugins.registry)


def test_a_rejected_plugin_is_a_problem_only_if_the_configuration_names_it(tmp_path):
    loaded_plugins = load(folder(tmp_path, a=FILTER.format(name="A"), broken="class Gone(:"))
    assert loaded_plugins.problems(configuration(loaded_plugins, enabled="A")) == []
    assert loaded_plugins.problems(configuration(loaded_plugins, enabled="Gone")) == [
        f"plugin Gone cannot be used: {tmp_path}/broken.py:1: "
        f"cannot be imported: SyntaxError: invalid syntax (--plugin-dir {tmp_path})"
    ]


def test_a_file_without_a_plugin_is_named_where_one_of_its_name_is_missing(tmp_path):
    loaded_plugins = load(folder(tmp_path, flow="", gpu_helper="A = 1"))
    [problem] = loaded_plugins.problems(configuration(loaded_plugins, enabled="Flow"))
    assert problem.startswith(
        f'plugin "Flow" does not exist: {tmp_path}/flow.py has no plugin, that is, no class'
    )
    assert loaded_plugins.problems(configuration(loaded_plugins, enabled="GpuHelper"))
    assert loaded_plugins.problems(configuration(loaded_plugins, enabled="Gone")) == []


def test_plugins_from_flags_that_no_profile_enables_are_returned(tmp_path):
    loaded_plugins = load(folder(tmp_path, a=FILTER.format(name="A"), b=FILTER.format(name="B")))
    assert loaded_plugins.unused(configuration(loaded_plugins, enabled="A")) == ["B"]


WITH_ARGS = """\
from proreus.config.fields import PluginArgs, Seconds
from proreus.framework.plugin import FilterPlugin

class A(FilterPlugin):
    class Args(PluginArgs):
        threshold: float = 0.8
        retry_after: Seconds = 90.0
        label: str

        def problems(self, path, gates):
            return [] if self.label else [1 / 0]

    def filter(self, state, pod, node):
        return None
"""


@pytest.mark.parametrize(
    ("args", "fault"),
    [
        ({"label": "x", "treshold": 1}, 'unknown field "treshold"'),
        ({"label": "x", "threshold": "much"}, "threshold: Input should be a valid number"),
        ({}, "label: Required value"),
    ],
)
def test_the_error_of_wrong_args_lists_the_fields(tmp_path, args, fault):
    loaded_plugins = load(folder(tmp_path, a=WITH_ARGS))
    with pytest.raises(ConfigError) as caught:
        configuration(loaded_plugins, enabled="A", args=args)
    (problem,) = caught.value.problems
    assert fault in problem
    assert problem.endswith(
        f"; A.Args ({tmp_path}/a.py:5) has the fields threshold: number = 0.8, "
        "retryAfter: duration = 1m30s, label: string required"
    )


def test_annotations_may_be_texts(tmp_path):
    source = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Note:\n    text: str = ''\n" + WITH_ARGS
    )
    loaded_plugins = load(folder(tmp_path, a=source))
    assert loaded_plugins.refusals == ()
    config = configuration(loaded_plugins, enabled="A", args={"label": "x", "retryAfter": "5s"})
    assert config.profiles[0].args()["A"].retry_after == 5.0


def test_a_plugin_without_args_takes_none(tmp_path):
    loaded_plugins = load(folder(tmp_path, a=FILTER.format(name="A")))
    with pytest.raises(ConfigError, match=r"pluginConfig\[0\]: plugin A takes no args"):
        configuration(loaded_plugins, enabled="A", args={"x": 1})


def test_args_that_raise_are_a_configuration_error_with_their_place(tmp_path):
    loaded_plugins = load(folder(tmp_path, a=WITH_ARGS))
    with (
        pytest.raises(ConfigError, match=rf"^{tmp_path}/a.py:11: .* ZeroDivisionError: "),
        loaded_plugins.attributing_errors_to_plugins(),
    ):
        configuration(loaded_plugins, enabled="A", args={"label": ""})
    with pytest.raises(KeyError), loaded_plugins.attributing_errors_to_plugins():
        raise KeyError("ours")


@pytest.mark.parametrize("error", ["SystemExit", "asyncio.CancelledError"])
def test_args_that_would_end_the_process_are_a_configuration_error(tmp_path, error):
    source = f"import asyncio\n{WITH_ARGS}"
    loaded_plugins = load(
        folder(tmp_path, a=source.replace("[1 / 0]", f"(_ for _ in ()).throw({error})"))
    )
    with (
        pytest.raises(ConfigError, match=rf"^{tmp_path}/a.py:12: .* {error.rpartition('.')[2]}$"),
        loaded_plugins.attributing_errors_to_plugins(),
    ):
        configuration(loaded_plugins, enabled="A", args={"label": ""})


WITHOUT_TEXT = """\
class WithoutText(Exception):
    def __str__(self):
        return self.nothing
"""


def test_errors_of_which_no_text_can_be_made_are_refusals_too(tmp_path):
    text = "<WithoutText, whose text raises AttributeError>"
    loaded_plugins = load(folder(tmp_path, a=WITHOUT_TEXT + "raise WithoutText\n"))
    [refusal] = loaded_plugins.refusals
    assert refusal.why == f"cannot be imported: WithoutText: {text}"
    source = WITHOUT_TEXT + WITH_ARGS.replace("1 / 0", "(_ for _ in ()).throw(WithoutText)")
    loaded_plugins = load(folder(tmp_path, a=source))
    with (
        pytest.raises(ConfigError, match=rf"{text}$"),
        loaded_plugins.attributing_errors_to_plugins(),
    ):
        configuration(loaded_plugins, enabled="A", args={"label": ""})


def test_a_module_is_imported_from_the_bytes_that_are_hashed(tmp_path, monkeypatch):
    """Byte code with the time and size of the source would be taken for it by Python."""
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "hashed_module_of_a_test.py"
    source = "from proreus.framework.plugin import FilterPlugin\nclass A{}(FilterPlugin):\n"
    source += "    def filter(self, state, pod, node): ...\n"
    file.write_text(source.format("1"))
    py_compile.compile(str(file))
    time = file.stat().st_mtime_ns
    file.write_text(source.format("2"))
    os.utime(file, ns=(time, time))
    loaded = load(PluginSources(modules=(f"{file.stem}:A2",), packages=False))
    assert not loaded.refusals
    assert loaded.hashes == {str(file): hashlib.sha256(file.read_bytes()).hexdigest()}
    (entry,) = loaded.files()
    assert (entry["file"], entry["plugins"]) == (str(file), ["A2"])
