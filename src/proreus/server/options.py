"""The values of the secure serving, authentication and authorization flags.

As parsed by ``cli`` and checked by ``problems``; nothing here opens a file.
"""

from __future__ import annotations

import ssl

from msgspec import Struct

TLS_VERSIONS = {
    "": ssl.TLSVersion.TLSv1_2,
    "VersionTLS10": ssl.TLSVersion.TLSv1,
    "VersionTLS11": ssl.TLSVersion.TLSv1_1,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}

CIPHER_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    # The suites of TLS 1.3 are always on, in OpenSSL as in Go.
    "TLS_AES_128_GCM_SHA256": "",
    "TLS_AES_256_GCM_SHA384": "",
    "TLS_CHACHA20_POLY1305_SHA256": "",
}
"""The flag's (IANA's) names -> OpenSSL's."""


FORWARDED_AUTHORIZATION = "X-Proreus-Authorization"
"""The source of a bearer token if there is no Authorization header."""


class SniCertificate(Struct, frozen=True):
    """``--tls-sni-cert-key cert,key:a.example,*.b.example``; by default the names in the
    certificate.
    """

    cert_file: str
    key_file: str
    names: tuple[str, ...] = ()


class RequestHeaderOptions(Struct, frozen=True):
    """The front proxies that may authenticate users, and the headers that they set."""

    ca_file: str = ""
    allowed_names: tuple[str, ...] = ()
    username_headers: tuple[str, ...] = ("x-remote-user",)
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ("x-remote-group",)
    extra_headers_prefix: tuple[str, ...] = ("x-remote-extra-",)


class AuthenticationOptions(Struct, frozen=True):
    """Authentication flags; ``kubeconfig`` is for TokenReviews and the cluster's client CA."""

    kubeconfig: str = ""
    skip_lookup: bool = False
    tolerate_lookup_failure: bool = True
    token_cache_ttl_seconds: float = 10.0
    client_ca_file: str = ""
    request_header: RequestHeaderOptions = RequestHeaderOptions()


class AuthorizationOptions(Struct, frozen=True):
    """Authorization flags; ``kubeconfig`` is for SubjectAccessReviews."""

    kubeconfig: str = ""
    always_allow_paths: tuple[str, ...] = ("/healthz", "/readyz", "/livez")
    authorized_ttl_seconds: float = 10.0
    unauthorized_ttl_seconds: float = 10.0


class ServingOptions(Struct, frozen=True):
    """Secure serving flags; ``secure_port`` 0 disables the server."""

    bind_address: str = "0.0.0.0"
    secure_port: int = 10259
    cert_dir: str = ""
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    tls_sni_cert_keys: tuple[SniCertificate, ...] = ()
    tls_cipher_suites: tuple[str, ...] = ()
    tls_min_version: str = ""
    permit_port_sharing: bool = False
    permit_address_sharing: bool = False
    authentication: AuthenticationOptions = AuthenticationOptions()
    authorization: AuthorizationOptions = AuthorizationOptions()

    def problems(self) -> list[str]:
        """Return a message for each invalid value, as kube-scheduler's validation does."""
        found = []
        if self.secure_port > 65535:
            found.append(
                f"--secure-port {self.secure_port} must be between 1 and 65535, inclusive. "
                "It cannot be turned off with 0"
            )
        if self.secure_port < 0:
            found.append(
                f"--secure-port {self.secure_port} must be between 0 and 65535, inclusive. "
                "0 for turning off secure port"
            )
        if bool(self.tls_cert_file) != bool(self.tls_private_key_file):
            found.append("--tls-cert-file and --tls-private-key-file must be given together")
        if self.tls_min_version not in TLS_VERSIONS:
            allowed = ", ".join(name for name in TLS_VERSIONS if name)
            found.append(
                f'--tls-min-version: unknown tls version "{self.tls_min_version}", '
                f"allowed are {allowed}"
            )
        found.extend(
            f"--tls-cipher-suites: Cipher suite {name} not supported or doesn't exist"
            for name in self.tls_cipher_suites
            if name not in CIPHER_SUITES
        )
        return found
