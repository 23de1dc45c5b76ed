from pathlib import Path

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


def test_quantities_times_and_inlined_fields_are_as_in_json() -> None:
    volume = message((1, "data"), (2, message((2, message((1, ""))))))
    requests = message((2, message((1, "cpu"), (2, message((1, "500m"))))))
    port = message((2, 0), (3, 80))
    container = message((1, "c"), (6, port), (8, requests))
    spec = message((1, volume), (2, container), (11, 0))
    zero, started = message((8, b"")), message((7, message((1, 60))))
    found = decode(body("v1", "Pod", message((1, zero), (2, spec), (3, started))))
    assert found["metadata"] == {}  # Go writes its zero time as an empty message
    assert found["status"] == {"startTime": "1970-01-01T00:01:00Z"}
    assert found["spec"] == {
        "volumes": [{"name": "data", "emptyDir": {}}],
        "containers": [
            {
                "name": "c",
                "ports": [{"containerPort": 80}],
                "resources": {"requests": {"cpu": "500m"}},
            }
        ],
    }


def test_a_lease_has_times_in_microseconds() -> None:
    spec = message((1, "me"), (3, message((1, 60), (2, 7))), (5, 0))
    assert decode(body("coordination.k8s.io/v1", "Lease", message((2, spec))))["spec"] == {
        "holderIdentity": "me",
        "acquireTime": "1970-01-01T00:01:00.000000Z",
        "leaseTransitions": 0,
    }


def test_a_number_or_a_text_and_an_empty_text_that_counts() -> None:
    budget = message((1, message((1, 1), (3, "50%"))), (3, message((2, 3))))
    found = decode(body("policy/v1", "PodDisruptionBudget", message((2, budget))))
    assert found["spec"] == {"minAvailable": "50%", "maxUnavailable": 3}
    claim = decode(body("v1", "PersistentVolumeClaim", message((2, message((3, ""), (5, ""))))))
    assert claim["spec"] == {"storageClassName": ""}


def test_the_table_of_messages_is_that_of_kubernetes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "lint"))
    import sandbox_protobuf

    folders = sandbox_protobuf.modules()
    if folders is None:
        pytest.skip("k8s.io/api is not in Go's module cache")
    assert sandbox_protobuf.TABLE.read_text() == sandbox_protobuf.table(folders)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"{}", 400),
        (b"k8s\x00\x0a\x20", 400),
        (body("apiextensions.k8s.io/v1", "CustomResourceDefinition", b""), 415),
        (body("v1", "Namespace", b"\x0a\x05ab"), 400),
        (body("v1", "Namespace", b"\x0b"), 400),
    ],
)
def test_other_messages_are_rejected(data: bytes, code: int) -> None:
    with pytest.raises(StatusError) as refused:
        decode(data)
    assert refused.value.code == code
