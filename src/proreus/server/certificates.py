"""The serving certificate: from files, from --cert-dir, or generated in memory; and its reload.

One ``ssl.SSLContext`` lives as long as the listener. A new certificate, or a new client CA, is
loaded into it and used for handshakes from then on.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from proreus.base import logs
from proreus.base.errors import ConfigError
from proreus.server.listener import load_files
from proreus.server.options import CIPHER_SUITES, TLS_VERSIONS, ServingOptions, SniCertificate

log = logs.logger(__name__)

_VALID = timedelta(days=365)


class ServingCertificate:
    """A TLS context and the files that it is loaded from; raises ``ConfigError`` for bad files."""

    def __init__(self, options: ServingOptions, component: str = "kube-scheduler") -> None:
        self._options = options
        self._files = _files_of(options, component)
        self.context = _new_context(options)
        self._sni: dict[str, ssl.SSLContext] = {}
        self._seen = self._stamps()
        self._load()

    def reload_if_changed(self) -> bool:
        """Load the files if they have changed; keep the present certificate if they are bad."""
        stamps = self._stamps()
        if stamps == self._seen:
            return False
        self._seen = stamps
        try:
            self._load()
        except ConfigError as error:
            log.error("Keeping the serving certificate: the new one is unusable", err=error)
            return False
        log.info("Reloaded the serving certificate", files=[str(path) for path in stamps])
        return True

    def trust_clients(self, pem: str) -> None:
        """Request client certificates in handshakes, and accept those signed by these CAs."""
        # Without a CA no certificate is requested: browsers would prompt their user for one.
        if pem:
            for context in (self.context, *self._sni.values()):
                context.load_verify_locations(cadata=pem)
                context.verify_mode = ssl.CERT_OPTIONAL

    def _load(self) -> None:
        if self._files is None:
            load_pem(self.context, self_signed())
        else:
            load_files(self.context, *self._files)
        self._sni = dict(self._load_sni())
        if self._sni:
            self.context.sni_callback = self._choose

    def _load_sni(self) -> Iterable[tuple[str, ssl.SSLContext]]:
        for pair in self._options.tls_sni_cert_keys:
            context = _new_context(self._options)
            context.verify_mode = self.context.verify_mode
            load_files(context, pair.cert_file, pair.key_file)
            for name in pair.names or _names_in(pair):
                yield name.lower(), context

    def _choose(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> int | None:
        name = (name or "").lower()
        wildcard = "*." + name.partition(".")[2]
        context = self._sni.get(name) or self._sni.get(wildcard)
        if context is not None:
            connection.context = context
        return None

    def _stamps(self) -> dict[str, tuple[int, int]]:
        pairs = [(pair.cert_file, pair.key_file) for pair in self._options.tls_sni_cert_keys]
        stamps = {}
        for path in (*(self._files or ()), *(path for pair in pairs for path in pair)):
            try:
                found = os.stat(path)
                stamps[path] = (found.st_mtime_ns, found.st_ino)
            except OSError:
                stamps[path] = (0, 0)
        return stamps


def self_signed(hosts: Iterable[str] = ("localhost", "127.0.0.1")) -> bytes:
    """Return a certificate and its key in PEM, valid for a year."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    hosts = tuple(hosts)
    subject = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, f"{hosts[0]}@{int(now.timestamp())}")]
    )
    names = [_general_name(host) for host in hosts]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # for clients whose clock is behind
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def write_self_signed(certificate: Path, key: Path) -> None:
    """Write a certificate for loopback, and its key, readable by its owner only."""
    pem = self_signed()
    cut = pem.index(b"-----BEGIN PRIVATE KEY")
    certificate.write_bytes(pem[:cut])
    key.touch(mode=0o600)
    key.write_bytes(pem[cut:])


def _files_of(options: ServingOptions, component: str) -> tuple[str, str] | None:
    """Return certificate and key file, generated if missing; None: keep both in memory."""
    if options.tls_cert_file:
        return options.tls_cert_file, options.tls_private_key_file
    if not options.cert_dir:
        return None
    folder = Path(options.cert_dir)
    certificate, key = folder / f"{component}.crt", folder / f"{component}.key"
    if not (certificate.exists() and key.exists()):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_self_signed(certificate, key)
        except OSError as error:
            raise ConfigError(f"--cert-dir: cannot keep a certificate there: {error}") from error
        log.info("Made a self-signed certificate", cert=str(certificate), key=str(key))
    return str(certificate), str(key)


def _new_context(options: ServingOptions) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = TLS_VERSIONS[options.tls_min_version]
    # As in Go, whatever is in a CA bundle is trusted, an intermediate without its root as well.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    ciphers = [CIPHER_SUITES[name] for name in options.tls_cipher_suites]
    if any(ciphers):
        context.set_ciphers(":".join(filter(None, ciphers)))
    return context


def load_pem(context: ssl.SSLContext, pem: bytes) -> None:
    """Load a certificate and its key, which stay in memory."""
    # Python's ssl loads certificates from files only; an anonymous one keeps the key off the disk.
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("serving-certificate")
        try:
            os.write(descriptor, pem)
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
    else:  # pragma: no cover (other systems than Linux)
        with tempfile.NamedTemporaryFile() as file:
            file.write(pem)
            file.flush()
            context.load_cert_chain(file.name)


def _names_in(pair: SniCertificate) -> list[str]:
    certificate = x509.load_pem_x509_certificate(Path(pair.cert_file).read_bytes())
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return found.value.get_values_for_type(x509.DNSName)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
