"""What a start requests at once."""

import pytest
import yaml

from proreus.cli import early_start
from proreus.cli.go_flags import ParsedFlags
from proreus.cli.run_flags import FLAGS

KUBECONFIG = {
    "current-context": "one",
    "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:8001"}}],
    "users": [{"name": "u", "user": {"token": "secret"}}],
}


@pytest.fixture
def requested(monkeypatch, tmp_path):
    """Return a function of flags that returns the credentials that lists were requested with."""
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(KUBECONFIG))
    found = []
    monkeypatch.setattr(early_start, "request_early_lists", lambda of: found.append(of) or {})

    def request(config=None, **flags):
        found.clear()
        if config is not None:
            path = tmp_path / "scheduler.yaml"
            path.write_text(config if isinstance(config, str) else yaml.safe_dump(config))
            flags["config"] = str(path)
        given = {name.replace("_", "-"): (value,) for name, value in flags.items()}
        early_start.request_lists(ParsedFlags({flag.name: flag for flag in FLAGS}, given))
        return found

    request.kubeconfig = str(tmp_path / "kubeconfig")
    return request


def test_the_flag_names_the_apiserver(requested):
    [credentials] = requested(kubeconfig=requested.kubeconfig)
    assert credentials.server == "http://127.0.0.1:8001"
    assert credentials.authorization() == "Bearer secret"
    [credentials] = requested(kubeconfig=requested.kubeconfig, master="http://127.0.0.1:9")
    assert credentials.server == "http://127.0.0.1:9"


def test_a_configuration_file_comes_before_the_flag(requested):
    file = {"clientConnection": {"kubeconfig": requested.kubeconfig}}
    [credentials] = requested(file, kubeconfig="/not/there")
    assert credentials.server == "http://127.0.0.1:8001"
    assert requested({"clientConnection": None}, kubeconfig=requested.kubeconfig) == []


def test_nothing_is_requested_that_may_not_be_needed(requested):
    file = {"clientConnection": {"kubeconfig": requested.kubeconfig}}
    assert requested({**file, "delayCacheUntilActive": True}) == []
    assert requested(file, write_config_to="/dev/null") == []


@pytest.mark.parametrize("config", ["[", "- a list", "clientConnection: 7", "\x00", "[" * 100_000])
def test_an_invalid_configuration_is_reported_later(requested, config):
    assert requested(config) == []


def test_an_invalid_kubeconfig_is_reported_later(requested, tmp_path):
    for number, content in enumerate(("[", "contexts: 7", "users: " + "[" * 100_000)):
        path = tmp_path / f"invalid-{number}"
        path.write_text(content)
        assert requested(kubeconfig=str(path)) == []


def test_a_missing_file_is_reported_later(requested):
    assert requested(kubeconfig="/not/there") == []
    values = ParsedFlags({flag.name: flag for flag in FLAGS}, {"config": ("/not/there",)})
    assert early_start.request_lists(values) == {}
