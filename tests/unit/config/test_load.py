"""Decoding, defaulting and the load as a whole; the texts were compared with kube-scheduler's."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from proreus.base.errors import ConfigError
from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import V1_36, V1_37
from proreus.config.fields import PluginArgs
from proreus.config.load import default_configuration, load, load_file
from proreus.config.types import API_VERSION, KIND, Extender, LeaderElection
from proreus.plugins.inter_pod_affinity.plugin import InterPodAffinityArgs
from proreus.plugins.node_resources_fit_args import NodeResourcesFitArgs

from .conftest import FakeCatalog

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def refusal(source, catalog, gates=None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(source, catalog, gates)
    return str(caught.value)


def test_an_empty_file_means_the_default_configuration(catalog):
    config = load(HEAD, catalog)
    assert config == default_configuration(catalog)
    assert config.parallelism == 16
    assert config.leader_election.lease_duration_seconds == 15.0
    assert config.client_connection.qps == 50.0
    (profile,) = config.profiles
    assert profile.name == "default-scheduler"
    first = [ref.name for ref in profile.plugins.multi_point.enabled][:3]
    assert first == ["SchedulingGates", "PrioritySort", "NodeName"]
    assert list(profile.args()) == sorted(profile.args())
    assert profile.args()["InterPodAffinity"] == InterPodAffinityArgs()
    fit = profile.args()["NodeResourcesFit"].scoring_strategy
    assert [(r.name, r.weight) for r in fit.resources] == [("cpu", 1), ("memory", 1)]


def test_configuration_is_frozen(catalog):
    with pytest.raises(ValidationError):
        default_configuration(catalog).parallelism = 3


def test_bytes_text_and_data_are_the_same(catalog, with_document):
    from_text = load(HEAD + "parallelism: 3\n", catalog)
    assert from_text == load((HEAD + "parallelism: 3\n").encode(), catalog)
    assert from_text == load(with_document(parallelism=3), catalog)


@pytest.mark.parametrize(
    ("body", "field", "value"),
    [
        ("enableProfiling: false", "enable_contention_profiling", False),
        ("enableContentionProfiling: false", "enable_contention_profiling", False),
        ("parallelism: null", "parallelism", 16),
        ("podInitialBackoffSeconds: 2", "pod_initial_backoff_seconds", 2),
        ("delayCacheUntilActive: true", "delay_cache_until_active", True),
    ],
)
def test_top_level_values(body, field, value, catalog):
    assert getattr(load(HEAD + body, catalog), field) == value


def test_zeros_and_empty_texts_are_replaced(catalog):
    config = load(
        HEAD
        + "leaderElection: {leaseDuration: 0s, resourceName: ''}\n"
        + "clientConnection: {qps: 0, burst: 0, contentType: ''}\n"
        + "extenders: [{urlPrefix: x}]\n",
        catalog,
    )
    assert config.leader_election == LeaderElection()
    assert (config.client_connection.qps, config.client_connection.burst) == (50.0, 100)
    assert config.extenders == (Extender(url_prefix="x", http_timeout_seconds=5.0),)


def test_a_name_is_given_to_a_single_profile_only(catalog):
    assert load(HEAD + "profiles: [{}]", catalog).profiles[0].name == "default-scheduler"
    assert refusal(HEAD + "profiles: [{}, {schedulerName: a}]", catalog) == (
        "profiles[0].schedulerName: Required value"
    )
    assert refusal(HEAD + "profiles: [{schedulerName: ''}]", catalog) == (
        "profiles[0].schedulerName: Required value"
    )


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("kind: X\n", "Object 'apiVersion' is missing in 'kind: X\n'"),
        ("", "Object 'Kind' is missing in ''"),
        (
            "apiVersion: v1\nkind: Pod\n",
            'no kind "Pod" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"',
        ),
        ("apiVersion: a/b/c\nkind: X\n", "unexpected GroupVersion string: a/b/c"),
        (
            HEAD.replace("KubeSchedulerConfiguration", "DefaultPreemptionArgs"),
            "couldn't decode as KubeSchedulerConfiguration, got kubescheduler.config.k8s.io/v1, "
            "Kind=DefaultPreemptionArgs: ",
        ),
        (
            HEAD + "parallelism: 3000000000",
            "json: cannot unmarshal number 3000000000 into Go struct field "
            "KubeSchedulerConfiguration.parallelism of type int32",
        ),
        (
            HEAD + "profiles: x",
            "json: cannot unmarshal string into Go struct field "
            "KubeSchedulerConfiguration.profiles of type []v1.KubeSchedulerProfile",
        ),
        (
            HEAD + "profiles: [1]",
            "json: cannot unmarshal number into Go struct field "
            "KubeSchedulerConfiguration.profiles of type v1.KubeSchedulerProfile",
        ),
        (
            HEAD + "profiles: [{schedulerName: 5}]",
            "json: cannot unmarshal number into Go struct field "
            "KubeSchedulerProfile.profiles.schedulerName of type string",
        ),
        (
            HEAD + "leaderElection: {leaseDuration: 15}",
            "json: cannot unmarshal number into Go struct field "
            "LeaderElectionConfiguration.leaderElection.leaseDuration of type string",
        ),
        (HEAD + "leaderElection: {leaseDuration: null}", 'time: invalid duration ""'),
        (
            HEAD + "clientConnection: {qps: 1e39}",
            "json: cannot unmarshal number 1e+39 into Go struct field "
            "ClientConnectionConfiguration.clientConnection.qps of type float32",
        ),
        (
            HEAD + "extenders: [{tlsConfig: {caData: '***'}}]",
            "illegal base64 data at input byte 0",
        ),
        (
            HEAD + "foo: 1\nprofiles: [{x: 1, plugins: {score: {enabled: [{q: 1}]}}}]",
            'strict decoding error: unknown field "foo", '
            'unknown field "profiles[0].plugins.score.enabled[0].q", '
            'unknown field "profiles[0].x"',
        ),
        (
            HEAD + "foo: 1\nprofiles: [{pluginConfig: [{name: InterPodAffinity, args: {bar: 1}}]}]",
            'strict decoding error: unknown field "foo", decoding .profiles[0].pluginConfig[0]: '
            "strict decoding error: decoding args for plugin InterPodAffinity: "
            'strict decoding error: unknown field "bar"',
        ),
        (
            HEAD + "leaderElection:\n  leaderElect: true\n  leaderElect: true\nfoo: 1",
            "strict decoding error: yaml: unmarshal errors:\n"
            '  line 5: key "leaderElect" already set in map, unknown field "foo"',
        ),
    ],
)
def test_decoding_errors(source, error, catalog):
    assert refusal(source, catalog) == error


def test_an_unknown_field_is_unknown_also_when_null(catalog):
    assert refusal(HEAD + "foo: null", catalog) == 'strict decoding error: unknown field "foo"'


def test_python_names_are_no_field_names_in_files(catalog):
    assert refusal(HEAD + "leader_election: {}", catalog) == (
        'strict decoding error: unknown field "leader_election"'
    )


def args_document(with_document, name, args):
    return with_document(profiles=[{"pluginConfig": [{"name": name, "args": args}]}])


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (
            {"kind": "InterPodAffinityArgs"},
            "args for plugin NodeResourcesFit were not of type "
            "NodeResourcesFitArgs.kubescheduler.config.k8s.io, "
            "got InterPodAffinityArgs.kubescheduler.config.k8s.io",
        ),
        (
            {"apiVersion": "v1"},
            "decoding args for plugin NodeResourcesFit: no kind "
            '"NodeResourcesFitArgs" is registered for version "v1" '
            'in scheme "pkg/runtime/scheme.go:111"',
        ),
        (
            {"ignoredResources": "x"},
            "decoding args for plugin NodeResourcesFit: json: cannot unmarshal string into "
            "Go struct field NodeResourcesFitArgs.ignoredResources of type []string",
        ),
    ],
)
def test_args_of_the_wrong_kind(args, error, catalog, with_document):
    source = args_document(with_document, "NodeResourcesFit", args)
    assert refusal(source, catalog) == f"decoding .profiles[0].pluginConfig[0]: {error}"


def test_args_may_carry_their_kind(catalog, with_document):
    args = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "NodeResourcesFitArgs",
        "ignoredResources": ["a.b/c"],
    }
    config = load(args_document(with_document, "NodeResourcesFit", args), catalog)
    fit = config.profiles[0].args()["NodeResourcesFit"]
    assert isinstance(fit, NodeResourcesFitArgs)
    assert fit.ignored_resources == ("a.b/c",)


def test_args_of_an_unknown_plugin_stay_as_written(catalog, with_document):
    config = load(args_document(with_document, "Mine", {"a": [1]}), catalog)
    assert config.profiles[0].args()["Mine"] == {"a": [1]}


class MineArgs(PluginArgs):
    size: int
    names: tuple[str, ...] = ()

    def problems(self, path, gates):
        if self.size < 1:
            yield f"{path}.size: too small"


def test_a_plugins_own_args_are_decoded_and_checked(catalog_type, with_document):
    catalog = catalog_type(extra={"Mine": MineArgs})
    config = load(args_document(with_document, "Mine", {"size": 2, "names": ["a"]}), catalog)
    assert config.profiles[0].args()["Mine"] == MineArgs(size=2, names=("a",))
    where = "decoding .profiles[0].pluginConfig[0]: decoding args for plugin Mine"
    for args, error in (
        ({"size": 0}, "profiles[0].pluginConfig[0].args.size: too small"),
        ({}, f"{where}: size: Required value"),
        ({"size": "2"}, f"{where}: size: Input should be a valid integer"),
        ({"size": 2.0}, f"{where}: size: Input should be a valid integer"),
        (
            {"size": 2, "names": "a"},
            f"{where}: json: cannot unmarshal string into Go struct field "
            "MineArgs.names of type []string",
        ),
    ):
        error_text, _, hint = refusal(
            args_document(with_document, "Mine", args), catalog
        ).partition("; ")
        assert error_text == error
        fields = "has the fields size: integer required, names: list of string = []"
        assert hint.endswith(fields) == (args != {"size": 0})


def test_a_plugin_that_is_enabled_needs_its_required_args(catalog_type, with_document):
    catalog = catalog_type(extra={"Mine": MineArgs})
    plugins = {"multiPoint": {"enabled": [{"name": "Mine"}]}}
    source = with_document(profiles=[{"plugins": plugins}])
    assert refusal(source, catalog) == "decoding args for plugin Mine: size: Required value"


def test_defaults_follow_gates(catalog):
    gates = FeatureGates.parse("StorageCapacityScoring=true,DRASchedulerFilterTimeout=false")
    args = load(HEAD, catalog, gates).profiles[0].args()
    assert [(p.utilization, p.score) for p in args["VolumeBinding"].shape] == [(0, 10), (100, 0)]
    assert args["DynamicResources"].filter_timeout_seconds is None
    assert args["DynamicResources"].binding_timeout_seconds == 600.0


def test_flags_win_before_validation(catalog):
    def override(config):
        election = config.leader_election.model_copy(update={"resource_lock": "leases"})
        return config.model_copy(update={"leader_election": election})

    source = HEAD + "leaderElection: {resourceLock: endpoints}"
    assert load(source, catalog, override=override).leader_election.resource_lock == "leases"
    assert "must be" in refusal(source, catalog)


def test_files(tmp_path, catalog):
    path = tmp_path / "config.yaml"
    path.write_text(HEAD + "parallelism: 4\n")
    assert load_file(str(path), catalog).parallelism == 4
    with pytest.raises(ConfigError) as caught:
        load_file("/nope/x", catalog)
    assert str(caught.value) == "open /nope/x: no such file or directory"


POD_GROUP_POST_FILTER = (
    HEAD + "profiles: [{plugins: {podGroupPostFilter: {disabled: [{name: DefaultPreemption}]}}}]"
)


def test_1_36_does_not_know_pod_group_post_filter(catalog):
    with pytest.raises(ConfigError) as refused:
        load(POD_GROUP_POST_FILTER, catalog, FeatureGates(emulation_version=V1_36))
    assert 'unknown field "profiles[0].plugins.podGroupPostFilter"' in str(refused.value)


def test_fields_of_1_38_are_unknown_before_in_the_order_of_the_file(catalog):
    source = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "first": 1,
        "percentageOfPlacementsToScore": "of any type",
        "profiles": [
            {"percentageOfPlacementsToScore": None, "plugins": {"placementFeasible": 5, "last": 1}}
        ],
    }
    with pytest.raises(ConfigError) as refused:
        load(source, catalog, FeatureGates(emulation_version=V1_37))
    fields = (
        "first",
        "percentageOfPlacementsToScore",
        "profiles[0].percentageOfPlacementsToScore",
        "profiles[0].plugins.placementFeasible",
        "profiles[0].plugins.last",
    )
    unknown = ", ".join(f'unknown field "{field}"' for field in fields)
    assert str(refused.value) == f"strict decoding error: {unknown}"


def test_1_37_knows_pod_group_post_filter(catalog):
    config = load(POD_GROUP_POST_FILTER, catalog, FeatureGates(emulation_version=V1_37))
    plugins = config.profiles[0].plugins.pod_group_post_filter
    assert [ref.name for ref in plugins.disabled] == ["DefaultPreemption"]


@pytest.mark.parametrize(
    ("text", "words", "remedy"),
    [
        (
            HEAD.replace("/v1", "/v1beta3"),
            'no kind "KubeSchedulerConfiguration" is registered for version '
            '"kubescheduler.config.k8s.io/v1beta3" in scheme "pkg/runtime/scheme.go:111"',
            "apiVersion: write kubescheduler.config.k8s.io/v1, in which all fields of v1beta3 are "
            "the same",
        ),
        (
            HEAD.replace("/v1", "/v1beta1"),
            'no kind "KubeSchedulerConfiguration" is registered for version '
            '"kubescheduler.config.k8s.io/v1beta1" in scheme "pkg/runtime/scheme.go:111"',
            "apiVersion: write kubescheduler.config.k8s.io/v1",
        ),
        (
            '{"kind": "Policy", "apiVersion": "v1", "predicates": []}',
            'no kind "Policy" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"',
            "kind: write KubeSchedulerConfiguration with apiVersion kubescheduler.config.k8s.io/v1,"
            " which has plugins where a Policy has predicates and priorities",
        ),
        (
            "{{- if .Values.enabled }}\n" + HEAD,
            "couldn't get version/kind; json parse error: Expecting property name enclosed in "
            "double quotes: line 1 column 2 (char 1)",
            "line 1: write what `helm template` makes of this template",
        ),
        (
            HEAD + "parallelism: {{ .Values.parallelism }}\n",
            "yaml: a mapping key must be a text or a number",
            "line 3: write what `helm template` makes of this template",
        ),
        ("kind: X\n", "Object 'apiVersion' is missing in 'kind: X\n'", "apiVersion: write "),
    ],
    ids=["v1beta3", "v1beta1", "policy", "helm", "helm value", "no version"],
)
def test_a_remedy_names_file_and_field(catalog, tmp_path, text, words, remedy):
    path = tmp_path / "scheduler.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_file(str(path), catalog)
    # kube-scheduler's words are those that people search for.
    assert str(caught.value) == words
    assert caught.value.explained.startswith(f"{path}: {words}; {remedy}")


class ElsewhereArgs(PluginArgs):
    arguments_without_effect = {"workers": "there are none"}
    points_without_effect = frozenset({"preScore"})

    limit: int = 3


def test_arguments_that_have_no_effect_here_are_accepted_with_a_warning(caplog):
    catalog = FakeCatalog({"Elsewhere": ElsewhereArgs})
    text = HEAD + (
        "profiles:\n- pluginConfig:\n  - name: Elsewhere\n    args: {workers: 3, limit: 4}\n"
        "  plugins: {preScore: {enabled: [{name: Elsewhere}]}}\n"
    )
    config = load(text, catalog)
    assert config.profiles[0].args()["Elsewhere"] == ElsewhereArgs(limit=4)
    assert [(one.getMessage(), one.pairs) for one in caplog.records] == [
        (
            "Argument without effect",
            {"plugin": "Elsewhere", "argument": "workers", "why": "there are none"},
        ),
        (
            "Plugin without effect at an extension point",
            {"profile": "default-scheduler", "plugin": "Elsewhere", "point": "preScore"},
        ),
    ]
    assert 'unknown field "worker"' in refusal(text.replace("workers", "worker"), catalog)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ("parallelism: 32", "parallelism"),
        ("clientConnection: {contentType: application/cbor}", "clientConnection.contentType"),
        ("clientConnection: {acceptContentTypes: a/b}", "clientConnection.acceptContentTypes"),
        ("parallelism: 16", None),
        ("clientConnection: {contentType: application/json}", None),
    ],
)
def test_a_field_without_effect_is_accepted_with_a_warning(body, field, catalog, caplog):
    load(HEAD + body, catalog)
    found = [one.pairs["field"] for one in caplog.records]
    assert found == ([field] if field else [])
    assert all(one.getMessage() == "Field without effect" for one in caplog.records)
