"""A server with real TLS on loopback, a scripted apiserver, and certificates."""

import contextlib
import datetime
import socket
import ssl
from dataclasses import dataclass

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from proreus.base.errors import ApiError
from proreus.base.metrics import SchedulerMetrics
from proreus.server.options import AuthenticationOptions, ServingOptions
from proreus.server.server import EndpointSources, Server

KEY = ec.generate_private_key(ec.SECP256R1())


class FakeApi:
    """Returns review results from a table; ``failures`` are raised first."""

    def __init__(self, tokens=None, allowed=(), config_map=None):
        self.tokens = tokens or {}
        self.allowed = set(allowed)
        self.config_map = config_map
        self.failures = []
        self.posted = []

    async def post(self, path, body):
        self.posted.append((path, body))
        if self.failures:
            raise self.failures.pop(0)
        spec = body["spec"]
        if body["kind"] == "TokenReview":
            user = self.tokens.get(spec["token"])
            return {"status": {"authenticated": True, "user": user} if user else {"error": "bad"}}
        attributes = spec["nonResourceAttributes"]
        wanted = (spec["user"], attributes["verb"], attributes["path"])
        return {"status": {"allowed": wanted in self.allowed}}

    async def get(self, path):
        if self.config_map is None:
            raise ApiError(403, "Forbidden", "configmaps is forbidden")
        return {"data": self.config_map}

    def kinds(self):
        return [body["kind"] for _, body in self.posted]


@dataclass
class Certificate:
    certificate: x509.Certificate

    @property
    def pem(self):
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def der(self):
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def key_pem(self):
        return KEY.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode()

    def write(self, folder, name="tls", intermediates=()):
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        certificate.write_text("".join(one.pem for one in (self, *intermediates)))
        key.write_text(self.key_pem)
        return str(certificate), str(key)


def issue(name, groups=(), issuer=None, dns=(), *, ca=False, hours=24):
    """Create a certificate, valid for some hours; without issuer it is a CA. All have one key."""
    ca = ca or issuer is None
    now = datetime.datetime.now(datetime.UTC)
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    attributes += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name(attributes)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(KEY.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=hours))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if not ca:
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    if dns:
        names = x509.SubjectAlternativeName([x509.DNSName(each) for each in dns])
        builder = builder.add_extension(names, critical=False)
    return Certificate(builder.sign(KEY, hashes.SHA256()))


class Client:
    """Sends HTTPS requests to a server, with the credentials that a test gives."""

    def __init__(self, server):
        self._base = f"https://127.0.0.1:{server.port}"

    async def __call__(self, path, *, method="GET", certificate=None, server_name=None, **options):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if certificate:
            context.load_cert_chain(*certificate)
        connector = aiohttp.TCPConnector(ssl=context, force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(
                method, self._base + path, server_hostname=server_name, **options
            ) as answer,
        ):
            return answer, await answer.text()


def listener():
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    made.listen(16)
    made.setblocking(False)
    return made


@pytest.fixture
async def serve():
    """Return a function that starts a server and returns (client, server)."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(api=None, *, metrics=None, sources=None, serving=None, **options):
            sources = sources or EndpointSources(metrics=metrics or SchedulerMetrics())
            serving = serving or ServingOptions(**options)
            server = Server(serving, sources, authentication_api=api, authorization_api=api)
            await server.start(listener())
            stack.push_async_callback(server.stop)
            return Client(server), server

        yield start


@pytest.fixture
def no_lookup():
    return AuthenticationOptions(skip_lookup=True)


@pytest.fixture(name="FakeApi")
def fake_api():
    return FakeApi


@pytest.fixture(name="issue")
def issue_fixture():
    return issue


@pytest.fixture(scope="session")
def authority():
    return issue("cluster-ca")
