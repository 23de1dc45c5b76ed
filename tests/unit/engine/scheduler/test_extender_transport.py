"""TLS options as kube-scheduler takes them, on real sockets, and what is refused at the start."""

import asyncio
import datetime
import gzip
import ipaddress
import ssl

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from proreus.base.clock import FakeClock
from proreus.base.errors import ConfigError, ExtenderError
from proreus.config.types import Extender, ExtenderManagedResource, ExtenderTLSConfig
from proreus.engine.extenders import extender_transport
from proreus.engine.extenders.extender import build_extenders, whole_types
from proreus.engine.extenders.extender_transport import Transport, tls_context
from proreus.testing.builders import make_pod

LOOPBACK = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]


def key_pair():
    """Return a self-signed certificate of this machine, a CA's too, and its key, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "scheduler")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(LOOPBACK), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return certificate.public_bytes(serialization.Encoding.PEM), private


@pytest.fixture
def make_server(tmp_path):
    """Return a function that returns a server's TLS context and its certificate."""

    def make():
        certificate, key = key_pair()
        file = tmp_path / "server.pem"
        file.write_bytes(key + certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context, certificate

    return make


def extender(url="https://x", timeout=5.0, **more):
    return Extender(url_prefix=url, http_timeout_seconds=timeout, **more)


def tls(**fields):
    return ExtenderTLSConfig(**fields)


# ---- options -------------------------------------------------------------------------------------


def test_an_address_that_is_none_is_refused():
    with pytest.raises(ConfigError, match=r'urlPrefix "http://\[::1/x": Invalid IPv6 URL'):
        Transport(extender("http://[::1/x"))


def test_without_options_the_systems_cas_decide():
    assert tls_context(extender()) is None


def test_https_without_a_ca_verifies_nothing():
    context = tls_context(extender(enable_https=True))
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)


def test_https_with_a_ca_verifies():
    ca, _ = key_pair()
    context = tls_context(extender(enable_https=True, tls_config=tls(ca_data=ca)))
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert len(context.get_ca_certs()) == 1


def test_options_count_without_the_flag_too():
    context = tls_context(extender(tls_config=tls(insecure=True)))
    assert context.verify_mode == ssl.CERT_NONE


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"insecure": True, "ca_data": b"anything"},
            "specifying a root certificates file with the insecure flag is not allowed",
        ),
        ({"ca_file": "/no/such/file"}, "open /no/such/file: no such file or directory"),
        (
            {"ca_data": b"no certificate"},
            "unable to load root certificates: unable to parse bytes as PEM block",
        ),
    ],
)
def test_options_that_do_not_work(options, message):
    configs = [extender(enable_https=True, tls_config=tls(**options))]
    with pytest.raises(ConfigError) as caught:
        build_extenders(configs, FakeClock())
    assert str(caught.value) == f"couldn't build extenders: {message}"


def test_a_key_that_is_not_the_certificates():
    (certificate, _), (_, key) = key_pair(), key_pair()
    config = extender(tls_config=tls(cert_data=certificate, key_data=key))
    with pytest.raises(ConfigError, match="tls: the client certificate and its key: "):
        tls_context(config)


def test_half_a_key_pair_counts_for_nothing():
    certificate, _ = key_pair()
    assert tls_context(extender(tls_config=tls(cert_data=certificate))) is None


# ---- on the wire ---------------------------------------------------------------------------------


@pytest.fixture
async def serve():
    """Return a function that serves one answer over TLS and returns the URL."""
    runners = []

    async def start(context):
        async def answer(request):
            return web.Response(body=await request.read())

        app = web.Application()

        async def expand(request):
            body = gzip.compress(bytes(int(await request.read())))
            return web.Response(body=body, headers={"Content-Encoding": "gzip"})

        async def hold(request):
            held.set()
            await free.wait()
            return web.Response(body=await request.read())

        start.held, start.free = held, free = asyncio.Event(), asyncio.Event()
        app.router.add_post("/hold", hold)
        app.router.add_post("/echo", answer)
        app.router.add_post("/expand", expand)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        runners.append(runner)
        return f"https://127.0.0.1:{runner.addresses[0][1]}"

    yield start
    for runner in runners:
        await runner.cleanup()


async def post(config):
    transport = Transport(config)
    try:
        return await transport.post("echo", b"body")
    finally:
        await transport.close()


async def test_a_ca_that_signed(serve, make_server, tmp_path):
    context, ca = make_server()
    url = await serve(context)
    (tmp_path / "ca.crt").write_bytes(ca)
    by_file = tls(ca_file=str(tmp_path / "ca.crt"))
    assert await post(extender(url, enable_https=True, tls_config=by_file)) == b"body"
    assert await post(extender(url, tls_config=tls(ca_data=ca))) == b"body"
    assert await post(extender(url, enable_https=True)) == b"body"


async def test_an_answer_is_not_expanded_without_end(serve, monkeypatch, make_server):
    monkeypatch.setattr(extender_transport, "_MORE_BYTES", 100_000)
    context, ca = make_server()
    url = await serve(context)
    transport = Transport(extender(url, enable_https=True, tls_config=tls(ca_data=ca)))
    try:
        assert len(await transport.post("expand", b"100000")) == 100_000
        with pytest.raises(ExtenderError, match="the body has more than 100032 bytes"):
            await transport.post("expand", b"30000000")
        assert len(await transport.post("expand", b"1000")) == 1_000
    finally:
        await transport.close()


@pytest.mark.parametrize("options", [{}, {"server_name": "localhost"}])
async def test_a_ca_that_did_not_sign(options, serve, make_server):
    context, _ = make_server()
    _, stranger = make_server()
    url = await serve(context)
    with pytest.raises(ExtenderError) as caught:
        await post(extender(url, tls_config=tls(ca_data=stranger, **options)))
    expected = f'Post "{url}/echo": tls: failed to verify certificate: x509: '
    assert str(caught.value).startswith(expected)


async def test_the_servers_name(serve, make_server):
    context, ca = make_server()
    url = await serve(context)
    known = tls(ca_data=ca, server_name="localhost")
    assert await post(extender(url, tls_config=known)) == b"body"
    unknown = tls(ca_data=ca, server_name="elsewhere")
    with pytest.raises(ExtenderError, match=r"tls: failed to verify certificate: .*elsewhere"):
        await post(extender(url, tls_config=unknown))


@pytest.mark.parametrize("as_files", [False, True])
async def test_a_client_certificate(as_files, serve, tmp_path, make_server):
    context, ca = make_server()
    certificate, key = key_pair()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=certificate.decode())
    url = await serve(context)
    pair = {"cert_data": certificate, "key_data": key}
    if as_files:
        (tmp_path / "cert").write_bytes(certificate)
        (tmp_path / "key").write_bytes(key)
        pair = {"cert_file": str(tmp_path / "cert"), "key_file": str(tmp_path / "key")}
    assert await post(extender(url, tls_config=tls(ca_data=ca, **pair))) == b"body"
    with pytest.raises(ExtenderError):
        await post(extender(url, tls_config=tls(ca_data=ca)))


async def test_files_that_change_are_read_again(serve, tmp_path, caplog, monkeypatch, make_server):
    """After a minute, and as soon as the extender could not be reached."""
    (first, ca), (second, other_ca) = make_server(), make_server()
    urls = [await serve(first), await serve(second)]
    file = tmp_path / "ca.crt"
    file.write_bytes(ca)
    options = {"ca_file": str(file), "server_name": "localhost"}
    transport = Transport(extender(urls[0], tls_config=tls(**options)))
    try:
        assert await transport.post("echo", b"body") == b"body"
        transport._base = urls[1]  # the extender's certificate is another one now
        with pytest.raises(ExtenderError, match="failed to verify certificate"):
            await transport.post("echo", b"body")
        file.write_bytes(b"half a certif")
        with pytest.raises(ExtenderError, match="failed to verify certificate"):
            await transport.post("echo", b"body")
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        file.write_bytes(other_ca)
        assert await transport.post("echo", b"body") == b"body"
        file.write_bytes(ca)
        assert await transport.post("echo", b"body") == b"body", "it is not looked at each time"
        now = asyncio.get_running_loop().time() + 61
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
        transport._base = urls[0]
        assert await transport.post("echo", b"body") == b"body"
    finally:
        await transport.close()


async def test_files_that_change_twice_leave_a_request_its_connection(
    serve, tmp_path, monkeypatch, make_server
):
    """They are written in two steps; a session is closed once its requests must have ended."""
    monkeypatch.setattr(extender_transport, "_LOOK_AT_FILES_SECONDS", 0.0)
    context, ca = make_server()
    url = await serve(context)
    file = tmp_path / "ca.crt"
    file.write_bytes(ca)
    transport = Transport(extender(url, timeout=30.0, tls_config=tls(ca_file=str(file))))
    try:
        held = asyncio.ensure_future(transport.post("hold", b"body"))
        await serve.held.wait()
        first = transport._session
        for _ in range(3):
            file.write_bytes(file.read_bytes() + b"\n")
            assert await transport.post("echo", b"body") == b"body"
        serve.free.set()
        assert await held == b"body"
        assert not first.closed
        now = asyncio.get_running_loop().time() + 31
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
        assert await transport.post("echo", b"body") == b"body"
        assert first.closed
    finally:
        await transport.close()


# ---- which proxy ---------------------------------------------------------------------------------


def test_proxies(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "inside.example.com")
    urls = ("http://outside", "http://inside.example.com", "http://127.0.0.1:1", "https://outside")
    assert [Transport(extender(url))._proxy for url in urls] == [
        *("http://proxy:3128", None),
        *(None, None),
    ]


# ---- what is built -------------------------------------------------------------------------------


def test_ignorable_extenders_come_last_and_the_order_stays():
    configs = [extender(url=url, ignorable=url in "bd") for url in "abcde"]
    assert [one.url for one in build_extenders(configs, FakeClock())] == list("acebd")


def test_what_is_watched_whole():
    def kinds(*configs):
        return {kind: type_.__name__ for kind, type_ in whole_types(configs).items()}

    assert kinds() == kinds(Extender(bind_verb="b")) == {}
    cached = Extender(filter_verb="f", node_cache_capable=True)
    assert kinds(cached) == {"Pod": "PendingPodWithJson"}
    assert kinds(Extender(prioritize_verb="p")) == {
        "Pod": "PendingPodWithJson",
        "Node": "NodeWithJson",
    }
    preempting = Extender(preempt_verb="p")
    assert kinds(cached, preempting) == kinds(preempting, cached) == {"Pod": "PodWithJson"}
    assert kinds(Extender(preempt_verb="p", node_cache_capable=True)) == {
        "Pod": "PendingPodWithJson"
    }


@pytest.mark.parametrize(
    ("resources", "interested"),
    [({}, False), ({"a/x": 1}, True), ({"a/x": 0}, True), ({"a/y": 1, "cpu": 1}, False)],
)
def test_interest(resources, interested):
    managed = (ExtenderManagedResource(name="a/x"), ExtenderManagedResource(name="a/z"))
    (one,) = build_extenders([Extender(managed_resources=managed)], FakeClock())
    (anyone,) = build_extenders([Extender()], FakeClock())
    pod = make_pod(resources=resources).pod
    assert (one.is_interested(pod), anyone.is_interested(pod)) == (interested, True)
