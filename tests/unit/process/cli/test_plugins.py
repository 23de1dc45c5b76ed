import json

import pytest

from proreus.plugins import IN_TREE_PLUGINS
from proreus.process.cli import main
from proreus.process.loading import add_ons

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


def test_add_ons_are_listed_after_in_tree_plugins(capsys):
    code, out, _ = run(capsys)
    assert code == 0
    assert all(f"{name} (add-on)\n" in out for name in add_ons())
    assert "NodeResourcesAllocatable (add-on)\n    score\n    mode: " in out
    assert out.index(f"{IN_TREE_PLUGINS[-1].name} (in-tree)") < out.index("(add-on)")


def test_an_out_of_tree_plugin_replaces_the_add_on_of_its_name(capsys, tmp_path):
    (tmp_path / "quiet.py").write_text(PLUGIN.replace("class Quiet", "class PodState"))
    code, out, err = run(capsys, "--plugin-dir", tmp_path)
    assert (code, err) == (0, "")
    assert "PodState (add-on)" not in out
    assert f"PodState ({tmp_path}/quiet.py:4)\n" in out


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


def test_evaluate_enables_given_plugins(capsysbinary, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "evaluated_plugin.py").write_text(
        "from proreus.framework.plugin import FilterPlugin\n"
        "from proreus.framework.status import Status\n"
        "class Nowhere(FilterPlugin):\n"
        "    def filter(self, state, pod, node):\n"
        "        return Status.unschedulable('not here')\n"
    )
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "uid": "1"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    case = {"id": "x", "config": None, "objects": [node], "pod": pod}
    (tmp_path / "cases.jsonl").write_text(json.dumps(case))
    cases = str(tmp_path / "cases.jsonl")

    def verdict(*options):
        with pytest.raises(SystemExit) as ended:
            main(["evaluate", *options, cases])
        assert ended.value.code == 0
        return capsysbinary.readouterr().out.decode()

    assert "not here" not in verdict()
    assert "not here" not in verdict("--plugin-dir", str(tmp_path))
    assert "not here" in verdict("--plugin", "evaluated_plugin:Nowhere")
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", "--plugin", "evaluated_plugin:Nobody", cases])
    assert ended.value.code == 1
    assert b"has no class Nobody; its plugins are Nowhere" in capsysbinary.readouterr().err


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


KOORDINATOR = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: Coscheduling
    args: {defaultTimeout: 600s, controllerWorkers: 1, skipCheckScheduleCycle: false, \
enablePreemption: true, awareNetworkTopology: true}
  - name: DeviceShare
    args: {allocator: default, disableDeviceNUMATopologyAlignment: true, \
gpuSharedResourceTemplatesConfig: {configMapName: x}, gpuShareUnsupportedModels: []}
  - name: Reservation
    args: {enablePreemption: true, minCandidateNodesPercentage: 10, minCandidateNodesAbsolute: 5, \
controllerWorkers: 1, gcDurationSeconds: 5}
  plugins:
    queueSort: {disabled: [{name: "*"}], enabled: [{name: Coscheduling}]}
    preEnqueue: {enabled: [{name: Coscheduling}]}
    preFilter: {enabled: [{name: Coscheduling}, {name: Reservation}, {name: DeviceShare}]}
    filter: {enabled: [{name: Reservation}, {name: LoadAwareScheduling}, {name: DeviceShare}]}
    postFilter: {enabled: [{name: Reservation}, {name: Coscheduling}]}
    preScore: {enabled: [{name: Reservation}, {name: Coscheduling}, {name: LowRiskOverCommitment}]}
    score: {enabled: [{name: LoadAwareScheduling}, {name: DeviceShare}, {name: Coscheduling}]}
    reserve: {enabled: [{name: Reservation}, {name: LoadAwareScheduling}, {name: Coscheduling}]}
    permit: {enabled: [{name: Coscheduling}]}
    preBind: {enabled: [{name: DeviceShare}, {name: Reservation}, {name: Coscheduling}]}
    bind: {disabled: [{name: "*"}], enabled: [{name: Reservation}, {name: DefaultBinder}]}
    postBind: {enabled: [{name: Coscheduling}]}
"""


def test_a_configuration_of_koordinator_works_as_it_is(capsys, tmp_path):
    path = tmp_path / "koordinator.yaml"
    path.write_text(KOORDINATOR)
    code, _, err = run(capsys, "--config", path)
    assert code == 0
    assert err.count("Argument without effect") == 14
    assert err.count("Plugin without effect at an extension point") == 8


def test_a_configuration_of_koordinator_works_with_the_successors_of_its_plugins(capsys, tmp_path):
    path = tmp_path / "koordinator.yaml"
    path.write_text(
        KOORDINATOR.replace(
            "preBind: {enabled: [", "preBind: {enabled: [{name: NodeResourceTopologyMatch}, "
        )
        .replace("{name: LoadAwareScheduling}", "{name: NodeResourceTopologyMatch}")
        .replace("postFilter: {enabled: [", "postFilter: {enabled: [{name: CapacityScheduling}, ")
    )
    code, _, err = run(capsys, "--config", path)
    assert code == 0, err


def test_all_unknown_plugins_are_told_at_once(capsys, tmp_path):
    path = tmp_path / "unknown.yaml"
    path.write_text(
        KOORDINATOR.replace("{name: LoadAwareScheduling}", "{name: NodeNUMAResource}")
        .replace("permit: {", "permit: {disabled: [{name: NoSuch}], ")
        .replace("{name: LowRiskOverCommitment}", "{name: ElasticQuota}, {name: SchedulingHint}")
    )
    code, _, err = run(capsys, "--config", path)
    assert code == 1
    assert err.splitlines()[-1] == (
        "Error: initializing profiles: creating profile for scheduler name default-scheduler: "
        f'FilterPlugin "NodeNUMAResource" does not exist; {path}: of the plugins that are enabled '
        "these do not exist: NodeNUMAResource (write NodeResourceTopologyMatch), "
        "ElasticQuota (write CapacityScheduling), SchedulingHint (leave it out)"
    )
