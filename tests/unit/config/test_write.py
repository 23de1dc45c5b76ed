from __future__ import annotations

import json

import pytest
import yaml

from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import V1_36, V1_37, V1_38
from proreus.config.load import default_configuration, load
from proreus.config.write import to_data, to_yaml
from proreus.engine.runtime.expansion import effective_configuration


def test_the_default_configuration_as_kube_scheduler_writes_it(catalog):
    written = to_data(default_configuration(catalog), FeatureGates())
    (profile,) = written.pop("profiles")
    assert written == {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {
            "acceptContentTypes": "",
            "burst": 100,
            "contentType": "application/vnd.kubernetes.protobuf",
            "kubeconfig": "",
            "qps": 50,
        },
        "enableContentionProfiling": True,
        "enableProfiling": True,
        "leaderElection": {
            "leaderElect": True,
            "leaseDuration": "15s",
            "renewDeadline": "10s",
            "resourceLock": "leases",
            "resourceName": "kube-scheduler",
            "resourceNamespace": "kube-system",
            "retryPeriod": "2s",
        },
        "parallelism": 16,
        "percentageOfNodesToScore": 0,
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 10,
    }
    assert profile["schedulerName"] == "default-scheduler"
    assert "percentageOfNodesToScore" not in profile
    plugins = profile["plugins"]
    assert plugins.pop("multiPoint")["enabled"][4] == {"name": "TaintToleration", "weight": 3}
    assert len(plugins) == 15
    assert set(map(str, plugins.values())) == {"{}"}
    assert profile["pluginConfig"][1] == {
        "name": "DynamicResources",
        "args": {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "DynamicResourcesArgs",
            "filterTimeout": "10s",
            "bindingTimeout": "10m0s",
        },
    }


@pytest.mark.parametrize(
    ("version", "newest_points"),
    [
        (V1_36, set()),
        (V1_37, {"podGroupPostFilter"}),
        (V1_38, {"podGroupPostFilter", "placementFeasible"}),
    ],
)
def test_the_extension_points_of_the_emulated_version_are_written(catalog, version, newest_points):
    gates = FeatureGates(emulation_version=version)
    (profile,) = to_data(default_configuration(catalog, gates), gates)["profiles"]
    newest = {"podGroupPostFilter", "placementFeasible"} & profile["plugins"].keys()
    assert newest == newest_points


def test_the_share_of_placements_is_written_where_the_version_has_it(catalog, with_document):
    def written(version):
        gates = FeatureGates.from_list(
            ("GenericWorkload=true", "TopologyAwareWorkloadScheduling=true"), version
        )
        return to_data(default_configuration(catalog, gates), gates)

    assert "percentageOfPlacementsToScore" not in written(V1_37)
    assert written(V1_38)["percentageOfPlacementsToScore"] == 0


def test_extenders_are_written_without_zeros(catalog, with_document):
    extender = {
        "urlPrefix": "",
        "weight": 5,
        "prioritizeVerb": "p",
        "enableHTTPS": True,
        "tlsConfig": {"caData": "YWJj"},
        "managedResources": [{"name": "a.b/c", "ignoredByScheduler": True}, {"name": "a.b/d"}],
    }
    source = with_document(extenders=[extender], delayCacheUntilActive=True)
    written = to_data(load(source, catalog), FeatureGates())
    assert written["extenders"] == [{**extender, "httpTimeout": "5s"}]
    assert written["delayCacheUntilActive"] is True


@pytest.mark.parametrize("version", [V1_37, V1_38], ids=str)
def test_what_is_written_loads_again(catalog, with_document, version):
    gates = FeatureGates.from_list(("StorageCapacityScoring=true",), version)
    constraint = {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway"}
    term = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
    profile = {
        "schedulerName": "a",
        "percentageOfNodesToScore": 5,
        "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeAffinity"}]}},
        "pluginConfig": [
            {
                "name": "PodTopologySpread",
                "args": {"defaultingType": "List", "defaultConstraints": [constraint]},
            },
            {
                "name": "NodeAffinity",
                "args": {
                    "addedAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {"weight": 1, "preference": term}
                        ]
                    }
                },
            },
            {
                "name": "NodeResourcesFit",
                "args": {
                    "scoringStrategy": {
                        "type": "RequestedToCapacityRatio",
                        "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}]},
                    }
                },
            },
        ],
    }
    config = effective_configuration(
        load(with_document(profiles=[profile]), catalog, gates), catalog
    )
    text = to_yaml(config, gates)
    again = load(text, catalog, gates)
    # defaults are merged once more, which changes nothing but what "all disabled" had removed
    assert effective_configuration(again, catalog) == config
    assert yaml.safe_load(text) == to_data(config, gates)


@pytest.mark.parametrize("name", ["y", "on", "1e3", "010", "0o7", "1_0", "2020-01-01", "null", ""])
def test_texts_stay_texts(name, catalog, with_document):
    config = load(with_document(leaderElection={"resourceNamespace": f"{name}"}), catalog)
    text = to_yaml(config, FeatureGates())
    assert load(text, catalog).leader_election == config.leader_election
    assert yaml.safe_load(text)["leaderElection"]["resourceNamespace"] == (name or "kube-system")


def test_args_of_plugins_that_no_profile_enables_are_omitted(catalog, with_document):
    profile = {
        "plugins": {"multiPoint": {"disabled": [{"name": "NodeResourcesFit"}]}},
        "pluginConfig": [
            {"name": "NodeResourcesFit", "args": {}},
            {"name": "Mine", "args": {"a": 1}},
        ],
    }
    config = effective_configuration(load(with_document(profiles=[profile]), catalog), catalog)
    names = [
        entry["name"] for entry in to_data(config, FeatureGates())["profiles"][0]["pluginConfig"]
    ]
    assert "NodeResourcesFit" not in names
    assert "Mine" not in names
    assert names == sorted(names)


def test_private_keys_of_extenders_are_masked(catalog, with_document):
    tls = {"certData": "Y2VydGlmaWNhdGU=", "keyData": "cHJpdmF0ZQ=="}
    extender = {"urlPrefix": "https://a", "enableHTTPS": True, "tlsConfig": tls}
    config = load(with_document(extenders=[extender]), catalog)
    text = to_yaml(config, FeatureGates())
    (written,) = to_data(config, FeatureGates())["extenders"]
    assert written["tlsConfig"] == {"certData": "Y2VydGlmaWNhdGU=", "keyData": "REDACTED"}
    assert "cHJpdmF0ZQ==" not in text
    (again,) = load(text, catalog).extenders
    assert again.tls_config.cert_data == b"certificate"
    assert config.extenders[0].tls_config.key_data == b"private"


@pytest.mark.parametrize(
    ("url", "written"),
    [
        ("https://me:pass@word@a:1/x", "https://me:REDACTED@a:1/x"),
        ("https://me@a/x:y@z", "https://me@a/x:y@z"),
        ("http://a:80/b", "http://a:80/b"),
    ],
)
def test_passwords_in_urls_of_extenders_are_masked(catalog, with_document, url, written):
    config = load(with_document(extenders=[{"urlPrefix": url, "filterVerb": "f"}]), catalog)
    assert to_data(config, FeatureGates())["extenders"][0]["urlPrefix"] == written
    assert config.extenders[0].url_prefix == url


def test_arguments_without_a_model_are_written_as_they_were_read(catalog, with_document):
    args = {"b": [1, {"c": None}], "a": "x"}
    profile = {"pluginConfig": [{"name": "NodeName", "args": args}]}
    # JSON text, which is read into dicts of a type of its own
    config = load(json.dumps(with_document(profiles=[profile])), catalog)
    (written,) = yaml.safe_load(to_yaml(config, FeatureGates()))["profiles"]
    assert {"name": "NodeName", "args": args} in written["pluginConfig"]
