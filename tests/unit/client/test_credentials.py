"""The apiserver's address and our identity, from files and the environment."""

import asyncio
import base64
import datetime
import json
import os
import shutil
import ssl
import sys
import threading
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from proreus.base.errors import ConfigError
from proreus.client.credentials import plain_credentials
from proreus.client.credentials.credential_loading import NOT_CONFIGURED, load
from proreus.client.credentials.credentials import Credentials


@pytest.fixture
def kubeconfig(tmp_path):
    """Write a kubeconfig with one user and one cluster; return its path."""

    def write(user, server="https://k8s:6443", name="config", **cluster):
        path = tmp_path / name
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "one",
            "contexts": [
                {"name": "one", "context": {"cluster": "c", "user": "u"}},
                {"name": "two", "context": {"cluster": "d", "user": "u"}},
            ],
            "clusters": [
                {"name": "c", "cluster": {"server": server, **cluster}},
                {"name": "d", "cluster": {"server": "https://other:6443"}},
            ],
            "users": [{"name": "u", "user": user}],
        }
        path.write_text(yaml.safe_dump(document))
        return str(path)

    return write


@pytest.fixture
def pems(tmp_path):
    """A self-signed certificate and its key."""

    def make(name="me"):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now)
            .not_valid_after(now + datetime.timedelta(days=1))
            .sign(key, hashes.SHA256())
        )
        cert_file, key_file = tmp_path / f"{name}.crt", tmp_path / f"{name}.key"
        cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return str(cert_file), str(key_file)

    return make


async def refused(credentials):
    """Report a 401, ten seconds later; return whether the request is worth repeating."""
    later = credentials.now() + 10
    credentials.now = lambda: later
    return await credentials.refresh(credentials.version)


async def test_token_and_context(kubeconfig):
    path = kubeconfig({"token": "abc"})
    found = await load(path, environ={})
    assert (found.server, await found.fetch_authorization()) == ("https://k8s:6443", "Bearer abc")
    assert (await load(path, context="two", environ={})).server == "https://other:6443"


async def test_master_overrides_the_server(kubeconfig):
    path = kubeconfig({"token": "abc"})
    found = await load(path, "https://here:1", environ={})
    assert (found.server, found.authorization()) == ("https://here:1", "Bearer abc")
    bare = await load("", "here:8080", environ={})
    assert (bare.server, await bare.fetch_authorization()) == ("http://here:8080", "")
    assert bare.tls_context() is None


async def test_no_configuration_is_kube_schedulers_error():
    with pytest.raises(ConfigError) as raised:
        await load(environ={})
    assert str(raised.value) == NOT_CONFIGURED
    found = await load(environ={"KUBERNETES_MASTER": "http://localhost:8080"})
    assert found.server == "http://localhost:8080"


async def test_kubernetes_master_fills_in_a_missing_server(kubeconfig):
    path = kubeconfig({"token": "abc"}, server="")
    found = await load(path, environ={"KUBERNETES_MASTER": "https://there:1"})
    assert found.server == "https://there:1"
    with pytest.raises(ConfigError, match="has no server"):
        await load(path, environ={})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (None, "no such file"),
        ("", "cannot be read"),
        ("{", "cannot be read"),
        ("- a list", "cannot be read"),
        ("current-context: x\ncontexts: []\nclusters: []\nusers: []", "name x in"),
        ("contexts: []\nclusters: []\nusers: []", "current-context"),
    ],
)
async def test_invalid_files_are_one_clear_sentence(tmp_path, text, named):
    path = tmp_path / "faulty"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=named) as raised:
        await load(str(path), environ={})
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


async def test_an_invalid_master_names_the_allowed_form():
    with pytest.raises(ConfigError, match="must be a URL like"):
        await load("", "ftp://x", environ={})


async def test_token_file_is_read_again_every_minute_and_after_a_401(kubeconfig, tmp_path):
    (tmp_path / "token").write_text("one\n")
    found = await load(kubeconfig({"tokenFile": "token"}), environ={})
    now = found.now()
    began = now
    found.now = lambda: now
    await found.fetch_authorization()
    assert found.authorization() == "Bearer one"
    (tmp_path / "token").write_text("two")
    now = began + 59
    assert found.authorization() == "Bearer one"
    now = began + 61
    assert found.authorization() is None
    assert await found.fetch_authorization() == "Bearer two"
    (tmp_path / "token").write_text("three")
    now = began + 70
    assert await refused(found)
    assert found.authorization() == "Bearer three"
    assert not await refused(found)  # nothing new: a retry would be useless
    (tmp_path / "token").unlink()
    assert await found.fetch_authorization() == "Bearer three"  # the old one stays in use


async def test_service_account(tmp_path, monkeypatch, pems):
    token, _ = tmp_path / "token", pems("ca")
    token.write_text("in-cluster")
    monkeypatch.setattr(plain_credentials, "SERVICE_ACCOUNT", tmp_path)
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    found = await load(environ=environ)
    assert found.server == "https://[fd00::1]:443"
    assert await found.fetch_authorization() == "Bearer in-cluster"
    assert isinstance(found.tls_context(), ssl.SSLContext)
    token.write_text("rotated")
    assert await refused(found)
    assert found.authorization() == "Bearer rotated"


async def test_an_unmounted_service_account_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(plain_credentials, "SERVICE_ACCOUNT", tmp_path)
    environ = {"KUBERNETES_SERVICE_HOST": "1.2.3.4", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(ConfigError, match="in-cluster configuration: Service token file"):
        await load(environ=environ)
    (tmp_path / "token").write_text("\n")
    with pytest.raises(ConfigError, match=r"Service token file .*/token is empty"):
        await load(environ=environ)
    (tmp_path / "token").write_text("t")
    with pytest.raises(ConfigError, match="in-cluster configuration: Service certification file"):
        await load(environ=environ)
    del environ["KUBERNETES_SERVICE_PORT"]
    with pytest.raises(ConfigError, match="Service host/port is not set"):
        await load(environ=environ)


async def test_client_certificate_and_its_rotation(kubeconfig, pems):
    (cert_file, key_file), (other_cert, other_key) = pems("me"), pems("other")
    user = {"client-certificate": cert_file, "client-key": key_file}
    path = kubeconfig(user, **{"certificate-authority": cert_file, "tls-server-name": "k8s.local"})
    found = await load(path, environ={})
    context = found.tls_context()
    await found.fetch_authorization()
    assert found.tls_context() is context
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert not context.verify_flags & getattr(ssl, "VERIFY_X509_STRICT", 0)
    assert found.tls_server_name == "k8s.local"
    assert not await refused(found)
    for source, target in ((other_cert, cert_file), (other_key, key_file)):
        shutil.copy(source, target)
        os.utime(target, ns=(1, 1))
    assert await refused(found)
    assert found.tls_context() is not context  # connections are opened with another one
    assert not await refused(found)


async def test_a_ca_file_that_changes_is_read_again(kubeconfig, pems, tmp_path):
    half_written = tmp_path / "half"
    half_written.write_text("-----BEGIN CERT")
    (ca_file, _), (other_file, _) = pems("ca"), pems("other")
    path = kubeconfig({"token": "a"}, **{"certificate-authority": ca_file})
    found = await load(path, environ={})
    await found.fetch_authorization()
    context = found.tls_context()
    shutil.copy(half_written, ca_file)
    await found.fetch_authorization()
    assert found.tls_context() is context
    shutil.copy(other_file, ca_file)
    await found.fetch_authorization()
    assert found.tls_context() is not context
    assert found.tls_context().cert_store_stats()["x509"] == 1  # the old one is not trusted


def data_of(*files):
    return [base64.b64encode(Path(file).read_bytes()).decode() for file in files]


async def test_a_kubeconfig_that_changes_is_read_again(kubeconfig, pems, caplog):
    """Where a controller renews the certificate in it, or a person signs in anew."""
    certificate, key = data_of(*pems("one"))
    authority, _ = data_of(*pems("ca"))
    ca = {"certificate-authority-data": authority}
    path = kubeconfig({"client-certificate-data": certificate, "client-key-data": key}, **ca)
    found = await load(path, environ={})
    context = found.tls_context()
    assert not await refused(found)
    certificate, key = data_of(*pems("two"))
    kubeconfig({"client-certificate-data": certificate, "client-key-data": key}, **ca)
    assert await refused(found)
    assert found.tls_context() is not context
    kubeconfig({"token": "abc"}, **ca)
    assert await refused(found)
    assert found.authorization() == "Bearer abc"
    Path(path).write_text("{")  # noqa: ASYNC240
    for _ in range(3):
        assert not await refused(found)
        assert await found.fetch_authorization() == "Bearer abc"
    [line] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert path in line.getMessage()
    caplog.clear()
    kubeconfig({"token": "def"}, server="https://elsewhere:6443", **ca)
    assert await refused(found)
    assert (found.server, found.authorization()) == ("https://k8s:6443", "Bearer def")
    [line] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "another server" in line.getMessage()


async def test_several_kubeconfigs_are_read_again_too(kubeconfig):
    """They are read by the library, and so is what an exec plugin needs."""
    path = f"{kubeconfig({'token': 'a'})}{os.pathsep}/does/not/exist"
    found = await load(path, environ={})
    assert found.authorization() == "Bearer a"
    kubeconfig({"token": "bcd"})
    assert await refused(found)
    assert found.authorization() == "Bearer bcd"


async def test_one_401_after_another_loads_nothing_again(kubeconfig, tmp_path):
    """An exec plugin is a process: twenty watches are refused within a moment."""
    found = await load(kubeconfig(plugin(tmp_path, {"token": "run-N"})), environ={})
    assert await refused(found)
    used = found.version
    for _ in range(20):
        assert not await found.refresh(used)
        assert await found.refresh(used - 1), "it was sent with the token before"
    assert found.authorization() == "Bearer run-2"


async def test_invalid_certificates_are_named(kubeconfig, tmp_path):
    (tmp_path / "junk").write_text("junk")
    path = kubeconfig({"token": "a"}, **{"certificate-authority": str(tmp_path / "junk")})
    found = await load(path, environ={})
    with pytest.raises(ConfigError, match=r"the CA certificates in .*junk"):
        found.tls_context()
    missing = kubeconfig({"token": "a"}, **{"certificate-authority": str(tmp_path / "nope")})
    with pytest.raises(ConfigError, match="nope"):
        await load(missing, environ={})


async def test_insecure_skip_tls_verify(kubeconfig):
    path = kubeconfig({"token": "a"}, **{"insecure-skip-tls-verify": True})
    context = (await load(path, environ={})).tls_context()
    assert context.verify_mode is ssl.CERT_NONE


def plugin(tmp_path, status, *, code=0):
    """An exec plugin that counts its runs and prints tokens with the number of the run."""
    script = tmp_path / "plugin.py"
    script.write_text(
        "import json, os, sys\n"
        f"path = {str(tmp_path / 'runs')!r}\n"
        "runs = len(open(path).read()) + 1 if os.path.exists(path) else 1\n"
        "open(path, 'w').write('x' * runs)\n"
        "assert 'KUBERNETES_EXEC_INFO' in os.environ\n"
        f"status = json.loads({json.dumps(json.dumps(status))}.replace('N', str(runs)))\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1',\n"
        "                  'kind': 'ExecCredential', 'status': status}))\n"
        f"sys.exit({code})\n"
    )
    command = {"command": sys.executable, "args": [str(script)]}
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", **command}}


async def test_exec_plugin_runs_again_only_when_its_token_is_refused(kubeconfig, tmp_path):
    found = await load(kubeconfig(plugin(tmp_path, {"token": "run-N"})), environ={})
    assert found.authorization() == "Bearer run-1"
    assert await found.fetch_authorization() == "Bearer run-1"
    assert await refused(found)
    assert found.authorization() == "Bearer run-2"


async def test_exec_plugin_that_returns_another_certificate_after_a_401(kubeconfig, tmp_path, pems):
    version, answer = "client.authentication.k8s.io/v1", tmp_path / "answer"

    def return_certificate(name):
        certificate, key = (Path(file).read_text() for file in pems(name))
        status = {"clientCertificateData": certificate, "clientKeyData": key}
        answer.write_text(
            json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
        )
        return certificate

    return_certificate("first")
    user = {"exec": {"apiVersion": version, "command": "cat", "args": [str(answer)]}}
    found = await load(kubeconfig(user), environ={})
    context = found.tls_context()
    second = return_certificate("second")
    assert await found.fetch_authorization() == ""
    assert found.tls_context() is context, "it is not run again before a 401"
    assert await refused(found)
    assert found.tls_context() is not context
    assert Path(found.tls.cert_file).read_text() == second  # noqa: ASYNC240


async def test_exec_plugin_whose_token_expires_runs_again(kubeconfig, tmp_path):
    expired = {"token": "run-N", "expirationTimestamp": "2020-01-01T00:00:00Z"}
    found = await load(kubeconfig(plugin(tmp_path, expired)), environ={})
    first = found.authorization()
    assert await found.fetch_authorization() != first


async def test_exec_plugin_that_fails_is_an_error_at_the_start(kubeconfig, tmp_path):
    path = kubeconfig(plugin(tmp_path, {"token": "x"}, code=3))
    with pytest.raises(ConfigError, match="exec: the credential plugin failed"):
        await load(path, environ={})


async def test_exec_plugin_that_hangs_is_killed_and_the_old_token_stays_in_use(
    kubeconfig, tmp_path
):
    expired = {"token": "run-N", "expirationTimestamp": "2020-01-01T00:00:00Z"}
    found = await load(kubeconfig(plugin(tmp_path, expired)), environ={})
    script, pid = tmp_path / "plugin.py", tmp_path / "pid"
    script.write_text(
        f"import os, signal\nopen({str(pid)!r}, 'w').write(f'{{os.getpid()}}.')\nsignal.pause()\n"
    )
    fetching = asyncio.create_task(found.fetch_authorization())
    first = found.authorization()
    async with asyncio.timeout(20):
        while not (pid.exists() and pid.read_text().endswith(".")):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    fetching.cancel()  # as the time limit does
    with pytest.raises(asyncio.CancelledError):
        await fetching
    process = Path("/proc", pid.read_text()[:-1])
    async with asyncio.timeout(20):
        while process.exists():  # noqa: ASYNC110, ASYNC240 - of another process
            await asyncio.sleep(0.01)
    found.fetch_seconds = 0.01
    assert await found.fetch_authorization() == first
    assert not await refused(found)
    # These two plugins were killed as well: asyncio has to reap them before the loop is closed.
    async with asyncio.timeout(20):
        while any(thread.name.startswith("waitpid-") for thread in threading.enumerate()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.01)


@pytest.mark.looptime
async def test_fetching_credentials_has_a_time_limit():
    loop = asyncio.get_running_loop()

    async def hang(force):
        await asyncio.Event().wait()

    found = Credentials("https://k8s:6443", fetch=hang)
    with pytest.raises(ConfigError, match="could not be fetched within 10 s"):
        await found.fetch_authorization()
    assert loop.time() == pytest.approx(10)


async def test_proxy_of_the_cluster(kubeconfig):
    path = kubeconfig({"token": "a"}, **{"proxy-url": "http://proxy:3128"})
    assert (await load(path, environ={})).proxy == "http://proxy:3128"


async def test_proxy_of_the_environment_is_not_used_for_loopback(monkeypatch):
    for name in ("no_proxy", "NO_PROXY", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    assert (await load("", "https://k8s:6443")).proxy == "http://proxy:3128"
    assert (await load("", "https://127.0.0.1:6443")).proxy is None
    monkeypatch.setenv("no_proxy", "k8s")
    assert (await load("", "https://k8s:6443")).proxy is None


# ---- without the kubernetes package --------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "cluster"),
    [
        ({"token": "secret"}, {}),
        ({"tokenFile": "token"}, {"tls-server-name": "api"}),
        ({"token": "secret"}, {"insecure-skip-tls-verify": True}),
        ({"client-certificate": "me.crt", "client-key": "me.key"}, {}),
        ({}, {"certificate-authority": "me.crt"}),
    ],
)
async def test_plain_kubeconfigs_are_read_as_the_library_reads_them(
    kubeconfig, pems, tmp_path, monkeypatch, user, cluster
):
    pems("me")
    (tmp_path / "token").write_text("from-file")
    path = kubeconfig(user, **cluster)
    plain = await load(path, environ={})
    monkeypatch.setattr(plain_credentials, "from_kubeconfig", lambda path, context: None)
    ours, theirs = plain, await load(path, environ={})
    assert (ours.server, ours.tls, ours.tls_server_name) == (
        theirs.server,
        theirs.tls,
        theirs.tls_server_name,
    )
    assert ours.authorization() == theirs.authorization()


def test_data_in_a_kubeconfig_becomes_files(kubeconfig, pems, tmp_path):
    cert_file, key_file = pems("me")
    user = {
        "client-certificate-data": base64.b64encode(Path(cert_file).read_bytes()).decode(),
        "client-key-data": base64.b64encode(Path(key_file).read_bytes()).decode(),
    }
    found = asyncio.run(load(kubeconfig(user), environ={}))
    assert Path(found.tls.cert_file).read_bytes() == Path(cert_file).read_bytes()
    assert isinstance(found.tls_context(), ssl.SSLContext)
    assert Path(found.tls.key_file).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("user", "cluster"),
    [
        ({"exec": {"command": "get-token"}}, {}),
        ({"auth-provider": {"name": "oidc"}}, {}),
        ({"username": "u", "password": "p"}, {}),
        ({"token": 7}, {}),
        ({"token": "t"}, {"proxy-url": "http://proxy:3128"}),
        ({"client-certificate": "missing.crt", "client-key": "missing.key"}, {}),
        ({"client-key-data": "!"}, {}),
    ],
)
def test_other_kubeconfigs_are_left_to_the_library(kubeconfig, user, cluster):
    assert plain_credentials.from_kubeconfig(kubeconfig(user, **cluster), None) is None


def test_neither_a_missing_file_nor_another_document_is_plain(tmp_path):
    (tmp_path / "text").write_text("just text")
    assert plain_credentials.from_kubeconfig(str(tmp_path / "text"), None) is None
    assert plain_credentials.from_kubeconfig(str(tmp_path / "none"), None) is None


@pytest.mark.parametrize("token", ["a\n", "a\r\nX-Injected: b"])
async def test_a_token_that_is_no_header_is_an_error(kubeconfig, token):
    with pytest.raises(ConfigError, match="characters that no HTTP header may have"):
        await load(kubeconfig({"token": token}), environ={})


async def test_a_token_file_that_is_no_text_keeps_the_old_token(kubeconfig, tmp_path, caplog):
    (tmp_path / "token").write_text("first")
    found = await load(kubeconfig({"tokenFile": "token"}), environ={})
    for content, why in ((b"\xff\xfe", "is no text"), (b"a\nb", "no HTTP header")):
        (tmp_path / "token").write_bytes(content)
        caplog.clear()
        for _ in range(3):
            assert await found.fetch_authorization() == "Bearer first"
            assert not await refused(found)
        (record,) = caplog.records
        assert why in record.getMessage()


async def test_a_failure_of_oidc_is_no_end(kubeconfig, monkeypatch):
    """The library raises whatever it meets."""
    from kubernetes.aio.config.kube_config import KubeConfigLoader

    async def load_token(loader, provider=None):
        if error is not None:
            raise error
        loader.token = "Bearer a"
        return loader.token

    error = None
    monkeypatch.setattr(KubeConfigLoader, "_load_oid_token", load_token)
    monkeypatch.setattr(KubeConfigLoader, "_refresh_oidc", load_token)
    provider = {"name": "oidc", "config": {"id-token": "a"}}
    found = await load(kubeconfig({"auth-provider": provider}), environ={})
    error = KeyError("id_token")
    assert await found.fetch_authorization() == "Bearer a"
    assert not await refused(found)
