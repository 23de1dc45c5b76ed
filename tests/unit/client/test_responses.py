"""Responses to single requests: one that cannot be decoded is an ``ApiError`` too."""

from __future__ import annotations

import msgspec
import pytest

from proreus.client.http.responses import (
    HttpResponse,
    ResponseLost,
    error_from_response,
    read_json,
    read_object,
)
from proreus.objects.pod import Pod

DEEP = b'{"metadata":{"name":"a","managedFields":' + b"[" * 5_000 + b"]" * 5_000 + b"}}"


def test_deeply_nested_objects_are_read_and_written_unchanged() -> None:
    assert read_object(DEEP, Pod).metadata.name == "a"
    assert msgspec.json.encode(read_json(DEEP)) == DEEP


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"3", b"[" * 5_000, b'"\xff"', b'{"metadata":3}'[:-1]]
)
def test_a_body_that_is_no_object_is_a_lost_response(body: bytes) -> None:
    with pytest.raises(ResponseLost):
        read_json(body)
    with pytest.raises(ResponseLost):
        read_object(body, Pod)


@pytest.mark.parametrize("body", [DEEP, b"[" * 5_000, b'{"message":"\xff', b'{"code":"x"}'])
def test_error_responses_without_a_status_are_errors(body: bytes) -> None:
    assert error_from_response(HttpResponse(503, body), "GET /x").status == 503
