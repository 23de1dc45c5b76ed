"""Client certificates and CAs that are rotated in their files, before a real TLS server."""

import asyncio
import datetime
import os
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from proreus.base.errors import ApiError, Unauthorized
from proreus.client.credentials.authentication_health import AuthenticationHealth
from proreus.client.credentials.credentials import Credentials, TlsFiles
from proreus.client.http.responses import ResponseLost, Unreachable
from proreus.client.http.session import ApiClient

_NO_CHECK_TIME = 0x200000  # OpenSSL's X509_V_FLAG_NO_CHECK_TIME
_HOUR = datetime.timedelta(hours=1)


def pem_of(certificate, key=None):
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    if key is not None:
        pem += key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    return pem


class Authority:
    """A CA that signs certificates."""

    def __init__(self, name="ca"):
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        self.certificate = self._sign(self.name, self.key, 10, constraints)

    def _sign(self, name, key, hours, *extensions):
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 100 * _HOUR)
            .not_valid_after(now + hours * _HOUR)
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=True)
        return builder.sign(self.key, hashes.SHA256())

    def issue(self, name, hours):
        """Return certificate and key in PEM, valid for some hours from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
        return pem_of(self._sign(subject, key, hours, names), key)


class TlsServer:
    """Judges the certificate of a connection at each request, as kube-apiserver does.

    ``hours``: how late it is for the server. ``strict``: certificates that have expired are refused
    in the handshake, as by some proxies. ``users``: the names in the certificates of requests.
    """

    def __init__(self, authority, folder, *, strict=False):
        self.folder = folder
        self.hours = 0
        self.users = []
        self.handshakes = 0
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.verify_mode = ssl.CERT_OPTIONAL
        if not strict:
            self._context.verify_flags |= _NO_CHECK_TIME
        self._context.load_verify_locations(cadata=pem_of(authority.certificate).decode())
        self.use(authority)
        self._listener = None

    def use(self, authority):
        """Serve with a certificate of a CA."""
        file = self.folder / "server.pem"
        file.write_bytes(authority.issue("server", 1000))
        self._context.load_cert_chain(file)

    async def __aenter__(self):
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        port = self._listener.sockets[0].getsockname()[1]
        self.url = f"https://localhost:{port}"
        return self

    async def __aexit__(self, *_):
        self._listener.close()

    async def _serve(self, reader, writer):
        self.handshakes += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                user = self._authenticate(writer.get_extra_info("peercert"))
                if user is None:
                    writer.write(b"HTTP/1.1 401 X\r\nContent-Length: 2\r\n\r\n{}")
                    continue
                self.users.append(user)
                if b"watch" in head:
                    writer.write(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n")
                else:
                    writer.write(b"HTTP/1.1 200 X\r\nContent-Length: 2\r\n\r\n{}")
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    def _authenticate(self, certificate):
        if not certificate:
            return None
        now = datetime.datetime.now(datetime.UTC) + self.hours * _HOUR
        if ssl.cert_time_to_seconds(certificate["notAfter"]) < now.timestamp():
            return None
        return dict(pair for [pair] in certificate["subject"])["commonName"]


class Files:
    """The files of a client, replaced as kubelets and cert-manager do."""

    def __init__(self, folder):
        self.tls = TlsFiles(*(str(folder / name) for name in ("ca.pem", "me.pem", "me.pem")))

    def write(self, path, content):
        new = Path(f"{path}.new")
        new.write_bytes(content)
        os.replace(new, path)

    def rotate(self, content):
        self.write(self.tls.cert_file, content)

    def trust(self, authority):
        self.write(self.tls.ca_file, pem_of(authority.certificate))


@pytest.fixture
def authority():
    return Authority()


@pytest.fixture
def files(tmp_path, authority):
    made = Files(tmp_path)
    made.trust(authority)
    return made


class Clock:
    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


@pytest.mark.parametrize("loaded_before", [False, True], ids=["by the 401", "before it"])
async def test_rotations_are_seamless_on_a_busy_connection(
    tmp_path, authority, files, loaded_before
):
    """A connection that is never idle would be used on with a certificate that has expired."""
    files.rotate(authority.issue("one", 1))
    async with TlsServer(authority, tmp_path) as server:
        now = Clock()
        credentials = Credentials(server.url, files.tls, now=now)
        async with ApiClient(credentials) as client:
            for number, name in enumerate(("two", "three", "four"), 1):
                for _ in range(3):
                    await client.request("GET", "/x")
                files.rotate(authority.issue(name, number + 1))
                now.seconds += 59
                await client.request("GET", "/x")
                if loaded_before:
                    now.seconds += 2
                    await client.request("GET", "/x")
                    assert server.users[-1] == name
                server.hours = number + 0.5
                await client.request("GET", "/x")
                assert server.users[-1] == name
    assert server.handshakes == 4, "one for each certificate"
    assert not client._pool


async def test_requests_that_are_refused_together_use_the_new_certificate(
    tmp_path, authority, files
):
    files.rotate(authority.issue("one", 1))
    async with (
        TlsServer(authority, tmp_path) as server,
        ApiClient(Credentials(server.url, files.tls)) as client,
    ):
        await asyncio.gather(*(client.request("GET", "/x") for _ in range(10)))
        files.rotate(authority.issue("two", 5))
        server.hours = 2
        await asyncio.gather(*(client.request("GET", "/x") for _ in range(10)))
    assert server.users == 10 * ["one"] + 10 * ["two"]


async def test_a_watch_begins_anew_after_a_rotation(tmp_path, authority, files):
    files.rotate(authority.issue("one", 1))
    async with (
        TlsServer(authority, tmp_path) as server,
        ApiClient(Credentials(server.url, files.tls)) as client,
        client.stream("/watch", query="watch=true", read_timeout_seconds=30) as stream,
    ):
        files.rotate(authority.issue("two", 5))
        server.hours = 2
        await client.request("GET", "/x")
        async with asyncio.timeout(60):
            assert await stream.chunk() == b""


async def test_without_new_files_a_401_is_an_error_and_said_by_the_health(
    tmp_path, authority, files
):
    files.rotate(authority.issue("one", 1))
    now = Clock()
    health = AuthenticationHealth(now)
    async with TlsServer(authority, tmp_path) as server:
        credentials = Credentials(server.url, files.tls, now=now)
        async with ApiClient(credentials, health=health) as client:
            await client.request("GET", "/x")
            server.hours = 2
            for now.seconds in (10, 20, 30):
                with pytest.raises(Unauthorized):
                    await client.request("GET", "/x")
            assert health.problem(15) == ("the apiserver has not accepted our credentials for 20 s")
            assert health.problem(25) is None
            files.rotate(authority.issue("two", 5))
            now.seconds = 40
            await client.request("GET", "/x")
            assert health.problem(0) is None


async def test_a_server_that_refuses_the_handshake_is_met_with_the_new_certificate(
    tmp_path, authority, files
):
    files.rotate(authority.issue("one", -1))
    async with (
        TlsServer(authority, tmp_path, strict=True) as server,
        ApiClient(Credentials(server.url, files.tls)) as client,
    ):
        with pytest.raises((ResponseLost, Unreachable)):
            await client.request("GET", "/x")
        files.rotate(authority.issue("two", 5))
        await client.request("GET", "/x")
        assert server.users == ["two"]


async def test_a_ca_that_is_rotated_is_trusted_and_the_old_one_no_longer(
    tmp_path, authority, files
):
    files.rotate(authority.issue("one", 5))
    other = Authority("another")
    now = Clock()
    health = AuthenticationHealth(now)
    async with (
        TlsServer(authority, tmp_path) as server,
        ApiClient(Credentials(server.url, files.tls), health=health) as client,
    ):
        await client.request("GET", "/x")
        server.use(other)
        files.trust(other)
        client.credentials.recheck()
        await client.request("GET", "/x")
        server.use(authority)
        client._pool.replace_connections()
        for now.seconds in (0, 20):
            with pytest.raises(ApiError, match="certificate verify failed"):
                await client.request("GET", "/x")
        assert health.problem(15)
        files.trust(authority)
        await client.request("GET", "/x")
        assert health.problem(0) is None


async def test_a_half_written_certificate_is_tried_again(tmp_path, authority, files, caplog):
    files.rotate(authority.issue("one", 1))
    now = Clock()
    async with (
        TlsServer(authority, tmp_path) as server,
        ApiClient(Credentials(server.url, files.tls, now=now)) as client,
    ):
        await client.request("GET", "/x")
        whole = authority.issue("two", 5)
        for now.seconds in (70, 140):
            files.rotate(whole[: len(whole) // 2])
            await client.request("GET", "/x")
        assert server.users[-1] == "one"
        now.seconds = 210
        files.rotate(whole)
        await client.request("GET", "/x")
        assert server.users[-1] == "two"
    assert sum(record.levelname == "WARNING" for record in caplog.records) == 1
