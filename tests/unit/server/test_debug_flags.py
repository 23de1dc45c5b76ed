"""/debug/flags: verbosity while the process runs."""

import pytest

from proreus.base import logs
from proreus.server.zpages import flags_index, set_verbosity


class Put:
    method = "PUT"

    def __init__(self, text):
        self._text = text

    async def text(self):
        return self._text


@pytest.fixture(autouse=True)
def _restored():
    yield
    logs.set_verbosity(0)


async def test_verbosity_is_set_by_put():
    assert (await set_verbosity(Put(" 3\n"))).text == "successfully set klog.logging.verbosity to 3"
    assert logs.logger("any").v(3)
    assert (await set_verbosity(Put("many"))).status == 400
    assert "/debug/flags/v" in flags_index(None).text


async def test_other_methods_do_nothing():
    request = Put("9")
    request.method = "GET"
    assert (await set_verbosity(request)).status == 406
