import json

import pytest

from proreus.plugins import IN_TREE_PLUGINS
from proreus.process.cli import main

PLUGIN = """\
from proreus.config.fields import PluginArgs
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin

class Quiet(FilterPlugin, PreFilterPlugin):
    \"\"\"Keep it quiet.

    More words.
    \"\"\"
    class Args(PluginArgs):
        limit: int = 3
        names: tuple[str, ...] = ("a b",)

    def pre_filter(self, state, pod, nodes): ...
    def filter(self, state, pod, node): ...
"""


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(["plugins", *map(str, arguments)])
    return ended.value.code, *capsys.readouterr()


def test_all_plugins_are_listed_with_points_arguments_and_origin(capsys, tmp_path):
    (tmp_path / "quiet.py").write_text(PLUGIN)
    code, out, err = run(capsys, "--plugin-dir", tmp_path)
    assert (code, err) == (0, "")
    assert all(f"{plugin.name} (in-tree)\n" in out for plugin in IN_TREE_PLUGINS)
    assert out.endswith(
        f"Quiet ({tmp_path}/quiet.py:4)\n"
        "    preFilter, filter\n"
        "    limit: integer = 3\n"
        '    names: list of string = ["a b"]\n'
    )


@pytest.mark.parametrize(
    ("version", "points"), [("1.36", "filter"), ("kube=1.37", "preFilter, filter")]
)
def test_extension_points_are_those_of_the_emulated_version(capsys, version, points):
    code, out, _ = run(capsys, "--emulated-version", version)
    assert code == 0
    assert f"NodeUnschedulable (in-tree)\n    {points}\n" in out


def test_an_out_of_tree_plugin_replaces_the_add_on_of_its_name(capsys, tmp_path):
    (tmp_path / "quiet.py").write_text(PLUGIN.replace("class Quiet", "class PodState"))
    code, out, err = run(capsys, "--plugin-dir", tmp_path)
    assert (code, err) == (0, "")
    assert "PodState (add-on)" not in out
    assert f"PodState ({tmp_path}/quiet.py:4, instead of the add-on)\n" in out


def test_the_list_as_data(capsys, tmp_path):
    (tmp_path / "quiet.py").write_text(PLUGIN)
    code, out, _ = run(capsys, "--plugin-dir", tmp_path, "--output", "json")
    assert code == 0
    listed = json.loads(out)
    assert listed["refused"] == []
    assert listed["plugins"][-1] == {
        "name": "Quiet",
        "description": "Keep it quiet.",
        "points": ["preFilter", "filter"],
        "args": [
            {"name": "limit", "type": "integer", "default": 3, "required": False},
            {"name": "names", "type": "list of string", "default": ["a b"], "required": False},
        ],
        "origin": {
            "kind": "folder",
            "package": "",
            "version": "",
            "file": f"{tmp_path}/quiet.py",
            "line": 4,
        },
    }


def test_a_refused_plugin_is_reported_with_exit_code_1(capsys, tmp_path):
    (tmp_path / "bad.py").write_text("import nothing_like_that\n")
    code, out, err = run(capsys, "--plugin-dir", tmp_path, "-o", "json")
    assert code == 1
    why = "cannot be imported: ModuleNotFoundError: No module named 'nothing_like_that'"
    assert err == f"Refused: {tmp_path}/bad.py:1: {why} (--plugin-dir {tmp_path})\n"
    assert json.loads(out)["refused"] == [
        {"source": f"--plugin-dir {tmp_path}", "place": f"{tmp_path}/bad.py:1", "why": why}
    ]


# ---- --config ------------------------------------------------------------------------------------

CONFIG = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - plugins: {multiPoint: {enabled: [{name: Opens}]}}
    pluginConfig: [{name: Opens, args: {path: PATH}}]
"""
OPENS = """\
from proreus.config.fields import PluginArgs
from proreus.framework.plugin import FilterPlugin

class Opens(FilterPlugin):
    class Args(PluginArgs):
        path: str = ""

    def __init__(self, args, handle):
        super().__init__(args, handle)
        open(args.path).close()

    def filter(self, state, pod, node): ...
"""


def try_out(capsys, tmp_path, config, plugin=OPENS):
    plugins = tmp_path / "plugins"
    plugins.mkdir(exist_ok=True)
    (plugins / "opens.py").write_text(plugin)
    (tmp_path / "config.yaml").write_text(config)
    return run(capsys, "--plugin-dir", plugins, "--config", tmp_path / "config.yaml")


def test_a_configuration_whose_plugins_can_be_made_passes(capsys, tmp_path):
    code, out, _ = try_out(capsys, tmp_path, CONFIG.replace("PATH", str(tmp_path / "config.yaml")))
    assert code == 0
    assert "Opens (" in out
    assert out.endswith("config.yaml is valid: a scheduler starts with it.\n")


BINDS = """\
from proreus.framework import BindPlugin

class Binds(BindPlugin):
    async def bind(self, state, pod, node_name): ...
"""


def test_warnings_name_the_plugins_and_the_remedy(capsys, tmp_path):
    config = CONFIG.partition("    pluginConfig")[0].replace("Opens", "Binds")
    code, _, err = try_out(capsys, tmp_path, config, BINDS)
    assert code == 0
    assert "Bind plugins are never called" in err
    assert 'plugins=["Binds"]' in err
    assert "enabled: [{name: Binds}, {name: DefaultBinder}]" in err


@pytest.mark.parametrize(
    ("config", "plugin", "error"),
    [
        (CONFIG, OPENS, "No such file or directory: 'PATH'"),
        (CONFIG.replace("path:", "way:"), OPENS, "way"),
        (CONFIG.replace("{name: Opens}]}}", "{name: Opne}]}}"), OPENS, '"Opne" does not exist'),
        (CONFIG.replace(", args: {path: PATH}", ""), "", "opens.py has no plugin"),
        (CONFIG.replace("kind: Kube", "kind: Cube"), OPENS, "CubeSchedulerConfiguration"),
    ],
)
def test_fails_if_proreus_would_not_start(capsys, tmp_path, config, plugin, error):
    code, _, err = try_out(capsys, tmp_path, config, plugin)
    assert code == 1
    assert error in err
