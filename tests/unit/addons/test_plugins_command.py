"""``proreus plugins`` knows add-ons, which are imported only once somebody names them."""

import subprocess
import sys

import pytest

from proreus.plugins import IN_TREE_PLUGINS
from proreus.process.cli import main
from proreus.process.loading.load import add_ons

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


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(["plugins", *map(str, arguments)])
    return ended.value.code, *capsys.readouterr()


def test_add_ons_are_listed_after_in_tree_plugins(capsys):
    code, out, _ = run(capsys)
    assert code == 0
    assert all(f"{name} (add-on)\n" in out for name in add_ons())
    assert "NodeResourcesAllocatable (add-on)\n    score\n    mode: " in out
    assert out.index(f"{IN_TREE_PLUGINS[-1].name} (in-tree)") < out.index("(add-on)")


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
        .replace("preFilter: {enabled: [", "preFilter: {enabled: [{name: CapacityScheduling}, ")
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
        f"Error: {path}: initializing profiles: creating profile for scheduler name "
        'default-scheduler: FilterPlugin "NodeNUMAResource" does not exist; of the plugins that '
        "are enabled these do not exist: NodeNUMAResource (write NodeResourceTopologyMatch), "
        "ElasticQuota (write CapacityScheduling), SchedulingHint (leave it out) (docs/words.md)"
    )


def test_add_ons_are_imported_only_when_a_configuration_names_them():
    code = """
import sys, proreus.process.cli.run, proreus.process
from proreus.config.load import default_configuration, load
from proreus.process.loading.load import PluginSources, load as load_plugins
registry = load_plugins(PluginSources(packages=False)).registry
default_configuration(registry)
print(*[name for name in sys.modules if name.startswith("proreus.addons.")])
load({
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"pluginConfig": [{"name": "PodState"}]}],
}, registry)
print(*sorted(name for name in sys.modules if name.startswith("proreus.addons.pod")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "",
        "proreus.addons.pod_state",
    ]
