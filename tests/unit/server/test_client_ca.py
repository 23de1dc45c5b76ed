import json
import logging

import pytest

from proreus.base.errors import ConfigError
from proreus.server.client_ca import CABundle, ClientCAs
from proreus.server.options import AuthenticationOptions, RequestHeaderOptions

SERIAL_NUMBER_0 = """-----BEGIN CERTIFICATE-----
MIIBXzCCAQSgAwIBAgIBADAKBggqhkjOPQQDAjANMQswCQYDVQQDDAJjYTAgFw0y
NjExMjExNjIyMjhaGA8yMTI2MTAyODE2MjIyOFowDTELMAkGA1UEAwwCY2EwWTAT
BgcqhkjOPQIBBggqhkjOPQMBBwNCAASRnPoGLIm4Dps5kO/bdlpijx+GahK6wN7f
KNRADN2weGBoRLmF7G3FRiZGfBFmRLpZ40dO2BJRFxuOpWmu0qKvo1MwUTAdBgNV
HQ4EFgQU0BkNHi2tnJBOpQ+Cl0LPLVcIohIwHwYDVR0jBBgwFoAU0BkNHi2tnJBO
pQ+Cl0LPLVcIohIwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNJADBGAiEA
7PMFmy7u2mTCAh8xRISkyey+RFXmYF6XwgM2OWS4DEcCIQC4+yS+xByordu9HjOB
VpUJLszsWpa7EQdETHpBtTLU8Q==
-----END CERTIFICATE-----
"""


async def test_the_cluster_publishes_its_cas(FakeApi, issue, authority):
    front = issue("front-ca")
    api = FakeApi(
        config_map={
            "client-ca-file": authority.pem,
            "requestheader-client-ca-file": front.pem,
            "requestheader-allowed-names": json.dumps(["front-proxy-client"]),
            "requestheader-username-headers": json.dumps(["X-Remote-User"]),
            "requestheader-group-headers": json.dumps(["X-Remote-Group"]),
            "requestheader-extra-headers-prefix": json.dumps(["X-Remote-Extra-"]),
        }
    )
    trusted = ClientCAs(AuthenticationOptions(), api)
    assert await trusted.refresh()
    assert trusted.clients.trusts([issue("a", issuer=authority).certificate])
    assert not trusted.clients.trusts([issue("a", issuer=front).certificate])
    assert trusted.proxies.trusts([issue("a", issuer=front).certificate])
    assert trusted.request_header == RequestHeaderOptions(
        allowed_names=("front-proxy-client",),
        username_headers=("X-Remote-User",),
        group_headers=("X-Remote-Group",),
        extra_headers_prefix=("X-Remote-Extra-",),
    )
    assert not await trusted.refresh()


async def test_a_file_takes_precedence_over_the_cluster(FakeApi, issue, authority, tmp_path):
    file = tmp_path / "ca.crt"
    file.write_text(issue("file-ca").pem)
    options = AuthenticationOptions(client_ca_file=str(file))
    trusted = ClientCAs(options, FakeApi(config_map={"client-ca-file": authority.pem}))
    await trusted.refresh()
    assert not trusted.clients.trusts([issue("a", issuer=authority).certificate])
    file.write_text(authority.pem)
    assert await trusted.refresh()
    assert trusted.clients.trusts([issue("a", issuer=authority).certificate])


async def test_a_failed_lookup_is_logged_once_and_tolerated(FakeApi, caplog):
    trusted = ClientCAs(AuthenticationOptions(), FakeApi())
    with caplog.at_level(logging.WARNING):
        await trusted.refresh()
        await trusted.refresh()
    (record,) = caplog.records
    assert "extension-apiserver-authentication-reader" in record.getMessage()
    assert trusted.pem == ""


async def test_a_failed_lookup_is_an_error_if_not_tolerated(FakeApi):
    options = AuthenticationOptions(tolerate_lookup_failure=False)
    with pytest.raises(ConfigError, match="configmaps is forbidden"):
        await ClientCAs(options, FakeApi()).refresh()


@pytest.mark.parametrize("content", ["", "no certificate"])
async def test_a_bad_file_is_named(tmp_path, content):
    file = tmp_path / "ca.crt"
    file.write_text(content)
    options = AuthenticationOptions(client_ca_file=str(file), skip_lookup=True)
    with pytest.raises(ConfigError, match=rf"--client-ca-file {file} holds no readable"):
        await ClientCAs(options, None).refresh()


async def test_a_missing_file_is_named():
    options = AuthenticationOptions(client_ca_file="/nowhere/ca.crt")
    with pytest.raises(ConfigError, match=r"cannot read /nowhere/ca\.crt"):
        await ClientCAs(options, None).refresh()


def test_a_ca_without_a_positive_serial_number_causes_no_warning():
    (certificate,) = CABundle.parse(SERIAL_NUMBER_0, "a file").certificates
    assert certificate.subject.rfc4514_string() == "CN=ca"
