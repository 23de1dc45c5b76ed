import asyncio
import contextlib
import logging

from proreus.process.loop_errors import handle_loop_error

CLOSED = "unable to perform operation on <TCPTransport closed=True>; the handler is closed"


def reported(caplog, **context):
    with contextlib.closing(asyncio.new_event_loop()) as loop, caplog.at_level(logging.INFO):
        handle_loop_error(loop, {"message": "Fatal error on SSL protocol", **context})
    return [record.getMessage() for record in caplog.records]


def test_data_for_a_connection_that_is_closed_are_no_error(caplog):
    assert reported(caplog, exception=RuntimeError(CLOSED), protocol=object()) == []


def test_other_errors_are_reported(caplog):
    (line,) = reported(caplog, exception=RuntimeError("something else"), protocol=object())
    assert line.startswith("Fatal error on SSL protocol")
    caplog.clear()
    assert reported(caplog, exception=RuntimeError(CLOSED))
