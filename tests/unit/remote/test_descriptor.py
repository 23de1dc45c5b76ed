"""A descriptor's errors are reported all at once, each with its field."""

from __future__ import annotations

import json

import pytest

from proreus.base.errors import ConfigError
from proreus.remote.descriptor import Descriptor, read_descriptor


def problems(**fields: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_descriptor(json.dumps(fields).encode(), "http://127.0.0.1:9/v1/descriptor")
    return [
        one.removeprefix("http://127.0.0.1:9/v1/descriptor: descriptor: ")
        for one in caught.value.problems
    ]


def test_a_valid_descriptor_is_read() -> None:
    text = b'{"protocol": "v1", "name": "Far", "points": ["score"], "events": null}'
    expected = Descriptor(protocol="v1", name="Far", points=("score",))
    assert read_descriptor(text, "here") == expected


def test_all_errors_are_reported_at_once() -> None:
    assert [
        one[:59]
        for one in problems(
            protocol="v2",
            points="score",
            nodeColumn=[],
            timeoutSeconds=60,
            failureMode="skip",
            events=[{"resource": "Node", "actions": ["Explode"]}],
        )
    ] == [
        "nodeColumn: is unknown, allowed are protocol, name, points,",
        "name: is missing",
        "points: Expected `array`, got `str`",
        "failureMode: Invalid enum value 'skip'",
        'protocol: "v2" is not supported, allowed is "v1"',
        'events[0].actions[0]: "Explode" is unknown, allowed are Add',
        "timeoutSeconds: 60 must be more than 0 and at most 10",
    ]


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(ConfigError, match="here: descriptor: Expected `object`, got `array`"):
        read_descriptor(b"[]", "here")
