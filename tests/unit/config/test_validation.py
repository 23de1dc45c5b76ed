"""Validation errors of decoded configurations, with kube-scheduler's texts."""

from __future__ import annotations

import pytest

from proreus.base.errors import ConfigError
from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import DEFAULT_VERSION, V1_37, V1_38
from proreus.config.load import load

NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


IN_1_37 = FeatureGates(emulation_version=V1_37)


def problems(source, catalog, gates="", version=DEFAULT_VERSION) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(source, catalog, FeatureGates.from_list(gates.split(","), version))
    return caught.value.problems


def test_all_faults_at_once_in_order(catalog, with_document):
    source = with_document(
        clientConnection={"burst": -1},
        leaderElection={"leaseDuration": "-5s", "renewDeadline": "-6s", "retryPeriod": "-1s"},
        parallelism=0,
        profiles=[{"schedulerName": "a", "percentageOfNodesToScore": 101}, {"schedulerName": "a"}],
        percentageOfNodesToScore=-1,
        podInitialBackoffSeconds=0,
        podMaxBackoffSeconds=-1,
        extenders=[{"bindVerb": "b"}, {"bindVerb": "c"}],
    )
    assert problems(source, catalog) == (
        "clientConnection.burst: Invalid value: -1: must be non-negative",
        'leaderElection.leaseDuration: Invalid value: "-5s": must be greater than zero',
        'leaderElection.renewDeadline: Invalid value: "-6s": must be greater than zero',
        'leaderElection.retryPeriod: Invalid value: "-1s": must be greater than zero',
        "parallelism: Invalid value: 0: should be an integer value greater than zero",
        "profiles[0].percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]",
        "profiles[1].schedulerName: Duplicate value: {}",
        "percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100]",
        "podInitialBackoffSeconds: Invalid value: 0: must be greater than 0",
        "podMaxBackoffSeconds: Invalid value: -1: must be greater than or equal to "
        "PodInitialBackoffSeconds",
        'extenders: Invalid value: "found 2 extenders implementing bind": only one extender can '
        "implement bind",
    )


def test_equal_profiles_are_named_beside_kube_schedulers_text(catalog, with_document):
    with pytest.raises(ConfigError) as caught:
        load(with_document(profiles=[{"schedulerName": "a"}, {"schedulerName": "a"}]), catalog)
    assert caught.value.explained == (
        'profiles[1].schedulerName: Duplicate value: {}; 2 profiles have schedulerName "a"'
    )


def test_leader_election_is_not_checked_when_off(catalog, with_document):
    off = {"leaderElect": False, "leaseDuration": "-5s", "resourceLock": "x"}
    load(with_document(leaderElection=off), catalog)


def test_lease_duration_shows_the_deadline(catalog, with_document):
    assert problems(with_document(leaderElection={"renewDeadline": "15s"}), catalog) == (
        'leaderElection.leaseDuration: Invalid value: "15s": must be greater than `RenewDeadline`',
    )


def test_removed_plugins(catalog, with_document):
    profile = {
        "plugins": {
            "filter": {"enabled": [{"name": "NodeName"}, {"name": "EBSLimits"}]},
            "multiPoint": {"enabled": [{"name": "GCEPDLimits"}]},
        },
        "pluginConfig": [{"name": "CinderLimits", "args": {}}],
    }
    detail = (
        'was invalid in version "v1" (KubeSchedulerConfiguration is version '
        '"kubescheduler.config.k8s.io/v1")'
    )
    assert problems(with_document(profiles=[profile]), catalog) == (
        f'profiles[0].plugins.filter.enabled[1]: Invalid value: "EBSLimits": {detail}',
        f'profiles[0].pluginConfig[0]: Invalid value: "CinderLimits": {detail}',
    )


def test_removed_plugins_are_refused_at_placements_since_1_38(catalog, with_document):
    enabled = {"enabled": [{"name": "EBSLimits"}]}
    points = ("placementGenerate", "placementScore", "placementFeasible")
    source = with_document(profiles=[{"plugins": dict.fromkeys(points, enabled)}])
    refused = problems(source, catalog, version=V1_38)
    assert [text.partition(".enabled")[0] for text in refused] == [
        f"profiles[0].plugins.{point}" for point in points
    ]
    load(with_document(profiles=[{"plugins": {"placementScore": enabled}}]), catalog, IN_1_37)


def test_the_share_of_placements_is_a_percentage_and_needs_its_gate(catalog, with_document):
    profiles = [{"percentageOfPlacementsToScore": 101}]
    source = with_document(profiles=profiles, percentageOfPlacementsToScore=-1)
    gates = "GenericWorkload=true,TopologyAwareWorkloadScheduling=true"
    name = "percentageOfPlacementsToScore"
    assert problems(source, catalog, gates, V1_38) == (
        f"profiles[0].{name}: Invalid value: 101: not in valid range [0-100]",
        f"{name}: Invalid value: -1: not in valid range [0-100]",
    )
    forbidden = (
        f"{name}: Forbidden: {name} requires TopologyAwareWorkloadScheduling feature gate to be "
        "enabled"
    )
    assert problems(source, catalog, "", V1_38) == (f"profiles[0].{forbidden}", forbidden)


def test_profiles_sort_alike(catalog, with_document):
    sort = {"queueSort": {"enabled": [{"name": "PrioritySort"}, {"name": "PrioritySort"}]}}
    profiles = [
        {"schedulerName": "a", "plugins": sort},
        {
            "schedulerName": "b",
            "pluginConfig": [{"name": "PrioritySort", "args": {"x": 2}}],
        },
    ]
    assert problems(with_document(profiles=profiles), catalog) == (
        "profiles[0].plugins.queueSort.Enabled: Invalid value: 2: "
        "only one queue sort plugin can be enabled",
        'profiles[1].plugins.queueSort: Invalid value: {"Enabled":null,"Disabled":null}: '
        "must be the same for all profiles",
        "profiles[1].pluginConfig.args: Invalid value: \"{'x': 2}\": "
        "queueSort must be the same for all profiles",
    )


def test_args_without_a_name_are_those_of_the_unnamed_queue_sort(catalog, with_document):
    nameless = {"pluginConfig": [{"args": {"x": 2}}]}
    profiles = [{"schedulerName": name, **nameless} for name in ("a", "b")]
    assert problems(with_document(profiles=profiles), catalog) == (
        "profiles[1].pluginConfig.args: Invalid value: \"{'x': 2}\": "
        "queueSort must be the same for all profiles",
    )


def test_extenders(catalog, with_document):
    names = ["a/b", "a/b", "x y", "", "kubernetes.io/x", "requests.a/b", "a/b/c", "/b", "A_/b"]
    resources = [{"name": name} for name in names]
    extender = {"prioritizeVerb": "p", "managedResources": resources}
    found = problems(with_document(extenders=[extender]), catalog)
    path = "extenders[0].managedResources"
    extended = "is an invalid extended resource name"
    assert found[:10] == (
        "extenders[0].weight: Invalid value: 0: must have a positive weight applied to it",
        f'{path}[1].name: Invalid value: "a/b": duplicate extender managed resource name',
        f'{path}[2].name: Invalid value: "x y": name part {NAME_RULE}',
        f'{path}[3].name: Invalid value: "": name part must be non-empty',
        f'{path}[3].name: Invalid value: "": name part {NAME_RULE}',
        f'{path}[4].name: Invalid value: "kubernetes.io/x": {extended}',
        f'{path}[5].name: Invalid value: "requests.a/b": {extended}',
        f'{path}[6].name: Invalid value: "a/b/c": a valid label key {NAME_RULE} with an optional '
        "DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
        f'{path}[7].name: Invalid value: "/b": prefix part must be non-empty',
        f'{path}[8].name: Invalid value: "A_/b": prefix part a lowercase RFC 1123 subdomain must '
        "consist of lower case alphanumeric characters, '-' or '.', and must start and end with an "
        "alphanumeric character (e.g. 'example.com', regex used for validation is "
        r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
    )


ARGS = "profiles[0].pluginConfig[0].args"


@pytest.mark.parametrize(
    ("plugin", "args", "gates", "expected"),
    [
        (
            "NodeResourcesBalancedAllocation",
            {"resources": [{"name": "cpu"}, {"name": "cpu", "weight": 2}]},
            "",
            (
                f'{ARGS}.resources[1].name: Duplicate value: "cpu"',
                f"{ARGS}.resources[1].weight: Invalid value: 2: must be 1",
            ),
        ),
        (
            "PodTopologySpread",
            {
                "defaultingType": "List",
                "defaultConstraints": [
                    {},
                    {
                        "maxSkew": -1,
                        "topologyKey": "a b",
                        "whenUnsatisfiable": "x",
                        "labelSelector": {},
                    },
                    {"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "ScheduleAnyway"},
                    {"maxSkew": 2, "topologyKey": "a", "whenUnsatisfiable": "ScheduleAnyway"},
                ],
            },
            "",
            (
                f"{ARGS}.defaultConstraints[0].maxSkew: Invalid value: 0: "
                "not in valid range (0, inf)",
                f"{ARGS}.defaultConstraints[0].topologyKey: Required value: can not be empty",
                f"{ARGS}.defaultConstraints[0].whenUnsatisfiable: Required value: can not be empty",
                f"{ARGS}.defaultConstraints[1].maxSkew: Invalid value: -1: "
                "not in valid range (0, inf)",
                f'{ARGS}.defaultConstraints[1].topologyKey: Invalid value: "a b": '
                f"name part {NAME_RULE}",
                f'{ARGS}.defaultConstraints[1].whenUnsatisfiable: Unsupported value: "x": '
                'supported values: "DoNotSchedule", "ScheduleAnyway"',
                f"{ARGS}.defaultConstraints[1].labelSelector: Forbidden: constraint must not "
                "define a selector, as they deduced for each pod",
                f'{ARGS}.defaultConstraints[3]: Duplicate value: "{{a, ScheduleAnyway}}"',
            ),
        ),
        (
            "PodTopologySpread",
            {"defaultingType": "Foo"},
            "",
            (
                f'{ARGS}.defaultingType: Unsupported value: "Foo": '
                'supported values: "System", "List"',
            ),
        ),
        (
            "VolumeBinding",
            {"shape": [{"utilization": 0, "score": 1}]},
            "StorageCapacityScoring=false",
            (
                f'{ARGS}.shape: Invalid value: [{{"Utilization":0,"Score":1}}]: unexpected field '
                "`shape`, remove it or turn on the feature gate StorageCapacityScoring",
            ),
        ),
        (
            "VolumeBinding",
            {"shape": [{"utilization": 9, "score": -1}, {"utilization": 3, "score": 11}]},
            "StorageCapacityScoring=true",
            (
                f"{ARGS}.shape[1].utilization: Invalid value: 3: "
                "values must be sorted in increasing order",
                f"{ARGS}.shape[0].score: Invalid value: -1: not in valid range [0, 10]",
                f"{ARGS}.shape[1].score: Invalid value: 11: not in valid range [0, 10]",
            ),
        ),
        (
            "DynamicResources",
            {"filterTimeout": "-5s", "bindingTimeout": "999ms"},
            "",
            (
                f'{ARGS}.filterTimeout: Invalid value: "-5s": must be zero or positive',
                f'{ARGS}.bindingTimeout: Invalid value: "999ms": must be at least 1 second',
            ),
        ),
        (
            "DynamicResources",
            {"filterTimeout": "5s", "bindingTimeout": "5s"},
            "DRASchedulerFilterTimeout=false,DRADeviceBindingConditions=false",
            (
                f"{ARGS}.filterTimeout: Forbidden: "
                "DRASchedulingFilterTimeout feature gate is disabled",
                f"{ARGS}.bindingTimeout: Forbidden: DRADeviceBindingConditions or "
                "DRAResourceClaimDeviceStatus feature gate is disabled",
            ),
        ),
    ],
)
def test_plugin_args(plugin, args, gates, expected, catalog, with_document):
    config = {"name": plugin, "args": args}
    source = with_document(profiles=[{"pluginConfig": [config]}])
    assert problems(source, catalog, gates) == expected


REQUIRED = f"{ARGS}.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution"
EXPRESSION = f"{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0]"
FIELD = f"{REQUIRED}.nodeSelectorTerms[0].matchFields[0]"


@pytest.mark.parametrize(
    ("where", "expression", "expected"),
    [
        (
            "matchExpressions",
            {"key": "a", "operator": "In", "values": []},
            f"{EXPRESSION}.values: Invalid value: []: for 'in', 'notin' operators, values set "
            "can't be empty",
        ),
        (
            "matchExpressions",
            {"key": "a", "operator": "Exists", "values": ["x"]},
            f'{EXPRESSION}.values: Invalid value: ["x"]: values set must be empty for exists and '
            "does not exist",
        ),
        (
            "matchExpressions",
            {"key": "a", "operator": "Gt", "values": ["99999999999999999999"]},
            f'{EXPRESSION}.values[0]: Invalid value: "99999999999999999999": for '
            "'Gt', 'Lt' operators, the value must be an integer",
        ),
        (
            "matchExpressions",
            {"key": "a", "operator": "Lt", "values": ["1", "2"]},
            f'{EXPRESSION}.values: Invalid value: ["1","2"]: for '
            "'Gt', 'Lt' operators, exactly one value is required",
        ),
        (
            "matchExpressions",
            {"key": "", "operator": "Exists"},
            f'{EXPRESSION}.key: Invalid value: "": name part must be non-empty; '
            f"name part {NAME_RULE}",
        ),
        (
            "matchExpressions",
            {"key": "a", "operator": "In", "values": ["b" * 64]},
            f'{EXPRESSION}.values[0][a]: Invalid value: "{"b" * 64}": '
            "must be no more than 63 bytes",
        ),
        (
            "matchExpressions",
            {"key": "a", "operator": "in", "values": ["x"]},
            f'{EXPRESSION}.operator: Unsupported value: "in": supported values: "In", "NotIn", '
            '"Exists", "DoesNotExist", "Gt", "Lt"',
        ),
        (
            "matchFields",
            {"key": "metadata.name", "operator": "In", "values": ["x", "y"]},
            f'{FIELD}.values: Invalid value: ["x","y"]: must have one element',
        ),
        (
            "matchFields",
            {"key": "metadata.name", "operator": "Exists"},
            f'{FIELD}.operator: Unsupported value: "Exists": supported values: "In", "NotIn"',
        ),
    ],
)
def test_added_affinity(where, expression, expected, catalog, with_document):
    terms = {"nodeSelectorTerms": [{where: [expression]}]}
    added = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    config = {"name": "NodeAffinity", "args": {"addedAffinity": added}}
    source = with_document(profiles=[{"pluginConfig": [config]}])
    assert problems(source, catalog) == (expected,)


def test_preferred_terms_without_weight_are_not_looked_at(catalog, with_document):
    bad = {"matchExpressions": [{"key": "a", "operator": "Foo"}]}
    for weight, accepted in ((0, True), (5, False)):
        terms = [{"weight": weight, "preference": bad}]
        added = {"preferredDuringSchedulingIgnoredDuringExecution": terms}
        config = {"name": "NodeAffinity", "args": {"addedAffinity": added}}
        source = with_document(profiles=[{"pluginConfig": [config]}])
        if accepted:
            load(source, catalog)
        else:
            (problem,) = problems(source, catalog)
            assert "Execution[0].matchExpressions[0].operator: Unsupported" in problem
