"""Pages below one path: authorized together, some open to all, refused in their own way."""

import pytest
from aiohttp import web

READER = {"username": "reader"}


class FakeSection:
    path = "/pages/"

    def __init__(self):
        self.running = None

    async def start(self):
        self.running = True

    async def stop(self):
        self.running = False

    async def open_page(self, request):
        return web.Response(text="open") if request.path == "/pages/open" else None

    def credentials(self, request):
        token = request.cookies.get("token")
        return {"Authorization": f"Bearer {token}"} if token else {}

    def refuse(self, request, refusal):
        return web.Response(text=f"refused {refusal.status}", status=refusal.status)

    async def respond(self, request):
        return web.Response(text=f"page {request.path}")


@pytest.fixture
async def served(serve, FakeApi):
    api = FakeApi(tokens={"t": READER, "u": {"username": "other"}})
    api.allowed = {("reader", "get", "/pages/")}
    client, server = await serve(api)
    section = FakeSection()
    server.add_section(section)

    async def get(path, **options):
        answer, body = await client(path, **options)
        return answer.status, body

    get.api, get.section, get.server = api, section, server
    return get


async def test_one_right_is_for_all_pages_below(served):
    headers = {"Authorization": "Bearer t"}
    for path in ("/pages/", "/pages/a", "/pages/a/b"):
        assert await served(path, headers=headers) == (200, f"page {path}")
    assert served.api.kinds().count("SubjectAccessReview") == 1
    assert (await served("/metrics", headers=headers))[0] == 403


async def test_the_path_without_its_slash_leads_there(served):
    response = await served("/pages", headers={"Authorization": "Bearer t"}, allow_redirects=False)
    assert response[0] == 301
    assert (await served("/page"))[0] == 403


async def test_the_section_refuses_callers_without_the_right(served):
    assert await served("/pages/a") == (403, "refused 403")
    assert await served("/pages/a", headers={"Authorization": "Bearer u"}) == (403, "refused 403")
    assert await served("/pages/a", headers={"Authorization": "Bearer x"}) == (401, "refused 401")
    # The right is one to get.
    headers = {"Authorization": "Bearer t"}
    assert await served("/pages/a", headers=headers, method="POST") == (403, "refused 403")


async def test_open_pages_need_nothing(served):
    assert await served("/pages/open") == (200, "open")
    assert served.api.kinds() == []


async def test_a_section_reads_credentials_where_browsers_keep_them(served):
    assert await served("/pages/a", headers={"Cookie": "token=t"}) == (200, "page /pages/a")
    assert (await served("/pages/a", headers={"Cookie": "token=x"}))[0] == 401
    # For its own pages only.
    assert (await served("/configz", headers={"Cookie": "token=t"}))[0] == 403


async def test_it_ends_with_the_server(served):
    await served.server.stop()
    assert served.section.running is False
