import pytest

from proreus.base.known_faults import KnownFault
from proreus.engine.runtime.plugin_health import FailureRules
from proreus.process import run as app
from proreus.process.cli import main
from proreus.process.cli.go_flags import FlagError, ParsedFlags
from proreus.process.cli.run import run_options
from proreus.process.cli.run_command import command
from proreus.process.cli.run_flags import FLAGS
from proreus.process.configuration import DEFAULT_QPS
from proreus.process.loading.load import PluginSources
from proreus.process.options import RunOptions, ShadowOptions
from proreus.server.options import ServingOptions, SniCertificate

KUBE_SCHEDULER = """
allow-metric-labels allow-metric-labels-manifest authentication-kubeconfig
authentication-skip-lookup authentication-token-webhook-cache-ttl
authentication-tolerate-lookup-failure authorization-always-allow-paths authorization-kubeconfig
authorization-webhook-cache-authorized-ttl authorization-webhook-cache-unauthorized-ttl
bind-address cert-dir client-ca-file config contention-profiling disable-http2-serving
disabled-metrics emulated-version feature-gates http2-max-streams-per-connection kube-api-burst
kube-api-content-type kube-api-qps kubeconfig leader-elect leader-elect-lease-duration
leader-elect-renew-deadline leader-elect-resource-lock leader-elect-resource-name
leader-elect-resource-namespace leader-elect-retry-period log-flush-frequency
log-json-info-buffer-size log-json-split-stream log-text-info-buffer-size log-text-split-stream
logging-format master min-compatibility-version permit-address-sharing permit-port-sharing
pod-max-in-unschedulable-pods-duration profiling requestheader-allowed-names
requestheader-client-ca-file requestheader-extra-headers-prefix requestheader-group-headers
requestheader-uid-headers requestheader-username-headers secure-port
show-hidden-metrics-for-version tls-cert-file tls-cipher-suites tls-curve-preferences
tls-min-version tls-private-key-file tls-sni-cert-key v version vmodule write-config-to
"""


def parse(*arguments):
    given = {}
    for argument in arguments:
        name, _, value = argument.removeprefix("--").partition("=")
        given[name] = (*given.get(name, ()), value)
    return run_options(ParsedFlags({flag.name: flag for flag in FLAGS}, given))


def test_all_flags_of_kube_scheduler_are_known():
    ours = {flag.name for flag in FLAGS if flag.group == "Proreus"}
    assert {flag.name for flag in FLAGS} - set(KUBE_SCHEDULER.split()) == ours
    assert "assumed-pod-expiration" in ours
    assert set(KUBE_SCHEDULER.split()) <= {flag.name for flag in FLAGS}


def test_without_flags_the_defaults_are_those_of_the_options():
    options = parse()
    assert options.serving == ServingOptions()
    assert (options.kube_api_qps, options.kube_api_burst) == (None, None)
    assert options.leader_election == {}
    assert options.max_unschedulable_seconds == 300
    assert options.assumed_pod_expiration_seconds is None
    assert options.flags["authorization-always-allow-paths"] == "[/healthz,/readyz,/livez]"


def test_only_given_leader_election_flags_override():
    options = parse(
        "--leader-elect=false",
        "--leader-elect-lease-duration=20s",
        "--leader-elect-resource-name=mine",
    )
    assert options.leader_election == {
        "leader_elect": False,
        "lease_duration_seconds": 20.0,
        "resource_name": "mine",
    }


def test_leader_election_fields_are_those_of_the_configuration():
    from proreus.config.types import LeaderElection

    options = parse(
        *("--leader-elect=true", "--leader-elect-lease-duration=1s"),
        *("--leader-elect-renew-deadline=1s", "--leader-elect-retry-period=1s"),
        *("--leader-elect-resource-lock=leases", "--leader-elect-resource-name=a"),
        "--leader-elect-resource-namespace=b",
    )
    assert options.leader_election.keys() == set(LeaderElection.model_fields)


def test_serving_flags():
    options = parse(
        "--bind-address=127.0.0.1",
        "--secure-port=0",
        "--tls-sni-cert-key=a.crt,a.key:a.test,*.a.test",
        "--tls-sni-cert-key=b.crt,b.key",
        "--tls-min-version=VersionTLS13",
        "--client-ca-file=/ca",
        "--requestheader-allowed-names=x,y",
        "--authentication-skip-lookup=true",
        "--authorization-always-allow-paths=/healthz,/metrics",
        "--authorization-webhook-cache-authorized-ttl=1m",
    )
    serving = options.serving
    assert (serving.bind_address, serving.secure_port) == ("127.0.0.1", 0)
    assert serving.tls_sni_cert_keys == (
        SniCertificate("a.crt", "a.key", ("a.test", "*.a.test")),
        SniCertificate("b.crt", "b.key"),
    )
    assert serving.authentication.client_ca_file == "/ca"
    assert serving.authentication.skip_lookup
    assert serving.authentication.request_header.allowed_names == ("x", "y")
    assert serving.authorization.always_allow_paths == ("/healthz", "/metrics")
    assert serving.authorization.authorized_ttl_seconds == 60


def test_client_limits_are_none_unless_given():
    options = parse("--kube-api-qps=5000", "--kube-api-burst=6000")
    assert (options.kube_api_qps, options.kube_api_burst) == (5000.0, 6000)


def test_the_limits_in_flagz_are_those_in_force():
    shown = parse().flags
    assert float(shown["kube-api-qps"]) == DEFAULT_QPS
    assert int(shown["kube-api-burst"]) == 100


def test_plugins_may_be_given_many_times():
    options = parse("--plugin=a:A", "--plugin=b.c:B", "--plugin-dir=/one", "--plugin-dir=/two")
    assert options.plugins == PluginSources(("a:A", "b.c:B"), ("/one", "/two"))
    assert options.flags["plugin"] == "[a:A,b.c:B]"


def test_rules_for_plugins():
    options = parse("--plugin-time-budget=20ms", "--plugin-failure-policy=skip")
    assert (options.plugin_rules.budget_seconds, options.plugin_rules.policy) == (0.02, "skip")
    assert parse().plugin_rules == FailureRules(
        end_at_budget=True, attempt_seconds=1.0, await_seconds=30.0, bind_seconds=600.0
    )
    unlimited = ("attempt-time-budget", "plugin-await-timeout", "plugin-bind-timeout")
    assert parse(*(f"--{flag}=0s" for flag in unlimited)).plugin_rules == FailureRules(
        end_at_budget=True
    )
    assert parse("--loop-blocked-threshold=0s").loop_blocked_threshold_seconds == 0


def test_when_a_cycle_is_stuck():
    assert parse().cycle_stuck_threshold_seconds == RunOptions().cycle_stuck_threshold_seconds == 60
    assert parse("--cycle-stuck-threshold=2m").cycle_stuck_threshold_seconds == 120
    assert parse("--cycle-stuck-threshold=0s").cycle_stuck_threshold_seconds == 0
    with pytest.raises(FlagError, match="--cycle-stuck-threshold: must be zero or greater"):
        parse("--cycle-stuck-threshold=-1s")


def test_how_long_a_plugin_may_block():
    assert parse().plugin_blocked_exit_seconds == RunOptions().plugin_blocked_exit_seconds == 15
    assert parse("--plugin-blocked-exit-timeout=0s").plugin_blocked_exit_seconds == 0
    assert parse("--blocked-plugins-file=/x/y").blocked_plugins_file == "/x/y"
    with pytest.raises(FlagError, match="--plugin-blocked-exit-timeout: must be zero or greater"):
        parse("--plugin-blocked-exit-timeout=-1s")


def test_where_arrivals_are_recorded():
    assert parse().record_arrivals == RunOptions().record_arrivals == ""
    assert parse("--record-arrivals=/x/y").record_arrivals == "/x/y"


def test_feature_gates():
    options = parse("--feature-gates=GenericWorkload=true,kube:GangScheduling=true")
    assert options.feature_gates.enabled("GangScheduling")


def test_corrections_are_off_unless_they_are_named():
    gates = parse().feature_gates
    assert gates.corrections == frozenset()
    assert not gates.corrects(KnownFault.PINNED_VICTIM)
    gates = parse("--corrections=pinned-victim,gang-member-completed").feature_gates
    assert gates.corrections == {KnownFault.PINNED_VICTIM, KnownFault.GANG_MEMBER_COMPLETED}
    assert gates.corrects(KnownFault.PINNED_VICTIM)


def test_metric_flags(tmp_path):
    manifest = tmp_path / "labels.yaml"
    manifest.write_text("m1,l: a,b\nm2,l: c\n")
    options = parse(
        f"--allow-metric-labels-manifest={manifest}",
        "--allow-metric-labels=m1,l='x'",
        "--disabled-metrics=m3,m4",
    )
    assert options.allow_metric_labels == {"m1,l": ("x",), "m2,l": ("c",)}
    assert options.disabled_metrics == ("m3", "m4")


def test_hidden_metrics_are_shown_for_the_version_before_the_emulated_one():
    assert not parse().show_hidden_metrics
    shown = parse("--show-hidden-metrics-for-version=1.36")
    assert shown.show_hidden_metrics
    assert shown.version.startswith("1.37.0+proreus.")
    with pytest.raises(FlagError, match="must be omitted or have the value"):
        parse("--emulated-version=1.36", "--show-hidden-metrics-for-version=1.36")


def test_flags_without_effect_are_passed_on():
    options = parse("--contention-profiling=true", "--log-flush-frequency=1s")
    assert options.flags_without_effect == ("--contention-profiling", "--log-flush-frequency")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--feature-gates=Nope=true"],
            'invalid argument for "--feature-gates" flag: unrecognized feature gate: Nope',
        ),
        (
            ["--corrections=pined-victim"],
            'invalid argument for "--corrections" flag: unknown correction "pined-victim", '
            f"there are: {', '.join(sorted(one.flag for one in KnownFault))}",
        ),
        (
            ["--secure-port=-1"],
            "--secure-port -1 must be between 0 and 65535, inclusive. "
            "0 for turning off secure port",
        ),
        (
            ["--plugin-failure-policy=ignore"],
            '--plugin-failure-policy: "ignore" is not supported, allowed are fail and skip',
        ),
        (
            ["--plugin-time-budget=0s"],
            "--plugin-time-budget: must be greater than zero",
        ),
        (
            ["--attempt-time-budget=-1s"],
            "--attempt-time-budget: must be zero or greater",
        ),
        (
            ["--plugin-await-timeout=-1s"],
            "--plugin-await-timeout: must be zero or greater",
        ),
        (
            ["--plugin-bind-timeout=-1s"],
            "--plugin-bind-timeout: must be zero or greater",
        ),
        (
            ["--loop-blocked-threshold=-1s"],
            "--loop-blocked-threshold: must be zero or greater",
        ),
        (
            ["--logging-format=xml"],
            '--logging-format: "xml" is not supported, allowed are text and json',
        ),
        (
            ["--logging-format=json", "--vmodule=a=1"],
            "--vmodule: only allowed for the text logging format",
        ),
        (
            ["--tls-sni-cert-key=a.crt"],
            'invalid argument "a.crt" for "--tls-sni-cert-key" flag: '
            "expected comma separated certificate and key file paths",
        ),
    ],
)
def test_bad_values(arguments, message):
    with pytest.raises(FlagError) as caught:
        parse(*arguments)
    assert str(caught.value) == message


@pytest.fixture
def ran(monkeypatch):
    seen = []

    async def run(options, on_signal):
        seen.append(options)
        return 3

    monkeypatch.setattr(app, "run", run)
    return seen


def test_the_exit_code_is_that_of_the_process(ran):
    with pytest.raises(SystemExit) as ended:
        main(["run", "--config", "c.yaml", "-v", "2"])
    assert ended.value.code == 3
    (options,) = ran
    assert (options.config, options.verbosity) == ("c.yaml", 2)


def test_a_mistake_is_one_line_and_exit_code_1(ran, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["run", "--nope"])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "Error: unknown flag: --nope\n"
    assert ran == []


def test_version(ran, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["run", "--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("Kubernetes v1.37.")
    assert ran == []


def test_the_command_is_called_run():
    assert command.name == "run"


def test_a_candidate_in_the_shadow_has_limits():
    assert parse().shadow is None
    assert parse("--shadow-config=next.yaml").shadow == ShadowOptions(config="next.yaml")
    given = parse(
        "--shadow-plugin-dir=a,b",
        "--shadow-pods=0",
        "--shadow-duration=1h",
        "--shadow-sample=1",
        "--shadow-on-success=adopt",
        "--shadow-max-differences=0.25",
    )
    assert given.shadow == ShadowOptions("", ("a", "b"), 0, 3600, 1, True, 0.25)


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--shadow-pods=5"], "--shadow-pods: needs --shadow-config or --shadow-plugin-dir"),
        (["--shadow-config=x", "--shadow-pods=-1"], "--shadow-pods: must be zero or greater"),
        (["--shadow-config=x", "--shadow-sample=0"], "--shadow-sample: must be greater"),
        (["--shadow-config=x", "--shadow-sample=1.5"], "--shadow-sample: must be greater"),
        (["--shadow-config=x", "--shadow-max-differences=2"], "between zero and 1"),
        (["--shadow-config=x", "--shadow-on-success=maybe"], "allowed are report and adopt"),
        (["--shadow-config=x", "--shadow-pods=0", "--shadow-duration=0s"], "one of them"),
    ],
)
def test_limits_of_a_candidate_are_checked(flags, problem):
    with pytest.raises(FlagError, match=problem):
        parse(*flags)
