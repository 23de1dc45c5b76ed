import pytest

from proreus.workbench.sandbox.api_errors import StatusError
from proreus.workbench.sandbox.protobuf import decode


def message(*fields: tuple[int, bytes | str | int]) -> bytes:
    """Encode fields; numbers and lengths stay below 128 here."""
    data = b""
    for number, value in fields:
        if isinstance(value, int):
            data += bytes([number << 3, value])
        else:
            value = value.encode() if isinstance(value, str) else value
            data += bytes([number << 3 | 2, len(value)]) + value
    return data


def body(api_version: str, kind: str, raw: bytes) -> bytes:
    return b"k8s\x00" + message((1, message((1, api_version), (2, kind))), (2, raw))


def test_an_eviction_is_decoded() -> None:
    metadata = message((1, "p"), (2, ""), (11, message((1, "a"), (2, "b"))))
    options = message((1, 30), (2, message((1, "uid"))), (5, "All"), (5, "None"), (99 >> 3, 7))
    assert decode(body("policy/v1", "Eviction", message((1, metadata), (2, options)))) == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "p", "labels": {"a": "b"}},
        "deleteOptions": {
            "gracePeriodSeconds": 30,
            "preconditions": {"uid": "uid"},
            "dryRun": ["All", "None"],
        },
    }


def test_secrets_are_base64_as_in_json() -> None:
    raw = message((2, message((1, "key"), (2, b"\xff\x00"))), (3, "Opaque"))
    assert decode(body("v1", "Secret", raw))["data"] == {"key": "/wA="}


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"{}", 400),
        (b"k8s\x00\x0a\x20", 400),
        (body("apps/v1", "Deployment", b""), 415),
        (body("v1", "Namespace", b"\x0a\x05ab"), 400),
        (body("v1", "Namespace", b"\x0b"), 400),
    ],
)
def test_other_messages_are_rejected(data: bytes, code: int) -> None:
    with pytest.raises(StatusError) as refused:
        decode(data)
    assert refused.value.code == code
