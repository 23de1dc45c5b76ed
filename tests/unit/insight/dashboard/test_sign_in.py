"""The token that a browser keeps."""

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from proreus.insight.dashboard import dashboard
from proreus.insight.dashboard.dashboard import (
    COOKIE,
    BadToken,
    cookie_credentials,
    forget_token,
    keep_token,
    reason_of,
    sent_token,
)
from proreus.server.responses import forbidden, status_body, unauthorized


class Form:
    def __init__(self, body):
        self._body = body

    async def read(self):
        return self._body


@pytest.mark.parametrize(
    ("body", "token"),
    [(b"token=abc.def-_", "abc.def-_"), (b"token=+Bearer+abc+", "abc"), (b"x=1&token=a%3D", "a=")],
)
async def test_the_token_of_a_form(body, token):
    assert await sent_token(Form(body)) == token


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"token=",
        b"token=a%22b",
        b"token=a%3Bb",
        b"token=%C3%A4",
        b"token=" + b"a" * 4000,
        b"\xff",
    ],
)
async def test_rejects_invalid_tokens(body):
    with pytest.raises(BadToken):
        await sent_token(Form(body))


async def test_a_form_that_does_not_end_or_is_too_long(monkeypatch):
    monkeypatch.setattr(dashboard, "_READ_SECONDS", 0.01)

    class Endless:
        async def read(self):
            await asyncio.sleep(60)

    with pytest.raises(BadToken, match="did not arrive"):
        await sent_token(Endless())
    with pytest.raises(BadToken, match="no form of this page"):
        await sent_token(Form(b"a=1&" * 100))


def test_scripts_and_other_sites_do_not_get_the_cookie():
    response = web.Response()
    keep_token(response, "abc", "/dashboard/")
    cookie = response.cookies[COOKIE]
    assert cookie.value == "abc"
    assert cookie["secure"]
    assert cookie["httponly"]
    assert (cookie["samesite"], cookie["path"]) == ("Strict", "/dashboard/")
    assert not cookie.get("max-age")
    assert not cookie.get("expires")
    forget_token(response, "/dashboard/")
    assert str(response.cookies[COOKIE]["max-age"]) == "0"


def test_a_header_goes_before_the_cookie():
    cookie = {"Cookie": f"{COOKIE}=abc"}
    request = make_mocked_request("GET", "/dashboard/", headers=cookie)
    assert cookie_credentials(request) == {"Authorization": "Bearer abc"}
    both = {**cookie, "Authorization": "Bearer xyz"}
    assert cookie_credentials(make_mocked_request("GET", "/", headers=both)) == {}
    assert cookie_credentials(make_mocked_request("GET", "/")) == {}


async def test_signing_in_and_out(browser):
    async with browser.session.post(
        f"{browser.base}/dashboard/sign-in", data={"token": "abc"}, allow_redirects=False
    ) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "/dashboard/")
        assert answer.cookies[COOKIE].value == "abc"
    async with browser.session.post(
        f"{browser.base}/dashboard/sign-in", data={"token": "a b"}
    ) as answer:
        assert answer.status == 400
        assert 'role="alert"' in await answer.text()
    assert await browser.get("/dashboard/sign-out") == 303
    assert f'{COOKIE}="";' in browser.headers["Set-Cookie"]


def test_a_refusal_is_said_in_sentences():
    assert reason_of(unauthorized()) == "The token is wrong, or it has expired."
    assert reason_of(forbidden("jane", "get", "/dashboard/")) == (
        "jane may not see the dashboard. An administrator can allow it with a ClusterRole for the "
        "nonResourceURL /dashboard/ and the verb get."
    )
    text = reason_of(forbidden("jane", "post", "/dashboard/", "no rule"))
    assert "may not use this page (verb post). The apiserver says: no rule." in text
    assert reason_of(status_body(500, "InternalError", "it is down")) == "it is down"
    assert reason_of(web.Response(status=502, text="bad gateway")) == "bad gateway"
