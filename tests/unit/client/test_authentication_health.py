"""Since when the apiserver does not accept our credentials."""

import ssl

import pytest

from proreus.client.credentials.authentication_health import AuthenticationHealth
from proreus.client.http.dialer import NotConnected


class Clock:
    seconds = 0.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def now():
    return Clock()


@pytest.fixture
def health(now):
    return AuthenticationHealth(now)


def test_it_counts_from_the_first_401_without_another_response_since(health, now):
    health.responded(401)
    for now.seconds in (10, 20):
        health.responded(401)
    assert health.problem(15) == "the apiserver has not accepted our credentials for 20 s"
    assert health.problem(20) is None
    health.responded(403)  # it knows who we are
    now.seconds = 100
    assert health.problem(15) is None


def test_one_refusal_that_no_request_follows_is_no_fault(health, now):
    """Nothing happens in the cluster: whether credentials are accepted by now is not known."""
    health.responded(401)
    now.seconds = 100
    assert health.problem(15) is None
    health.responded(401)
    assert health.problem(15) == "the apiserver has not accepted our credentials for 100 s"


def alert(reason):
    error = ssl.SSLError(1, "an alert")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (alert("SSLV3_ALERT_CERTIFICATE_EXPIRED"), True),
        (alert("TLSV13_ALERT_CERTIFICATE_REQUIRED"), True),
        (alert("TLSV1_ALERT_UNKNOWN_CA"), True),
        (ssl.SSLCertVerificationError(1, "certificate verify failed"), True),
        (alert("UNEXPECTED_EOF_WHILE_READING"), False),
        (ConnectionResetError("an apiserver that is down"), False),
        (None, False),
    ],
)
def test_a_handshake_that_is_refused_counts_and_an_apiserver_that_is_down_does_not(
    health, now, error, refused
):
    not_connected = NotConnected("wrapped")
    not_connected.__cause__ = error
    health.failed(not_connected)
    now.seconds = 20
    health.failed(not_connected)
    assert (health.problem(15) is not None) is refused
