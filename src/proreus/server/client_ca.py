"""Loads the CAs of client certificates: from files that flags name, otherwise from the cluster.

The ConfigMap kube-system/extension-apiserver-authentication has the cluster's client CA and its
front proxy. Both sources are read again every minute, since CAs are rotated while we run.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.utils import CryptographyDeprecationWarning
from msgspec.structs import replace

from proreus.base import logs
from proreus.base.errors import ApiError, ConfigError
from proreus.server.delegation import ApiAccess
from proreus.server.options import AuthenticationOptions, RequestHeaderOptions

log = logs.logger(__name__)

CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"


@dataclass(frozen=True)
class CABundle:
    """A CA bundle: its certificates, and the PEM they were parsed from."""

    pem: str = ""
    certificates: tuple[x509.Certificate, ...] = ()

    @classmethod
    def parse(cls, pem: str, source: str) -> CABundle:
        """Parse a bundle; raises ``ConfigError`` that names its source."""
        try:
            with warnings.catch_warnings():
                # Some tools give their CA the serial number 0: the operator of a scheduler cannot
                # repair that.
                warnings.simplefilter("ignore", CryptographyDeprecationWarning)
                return cls(pem, tuple(x509.load_pem_x509_certificates(pem.encode())))
        except ValueError as error:
            raise ConfigError(f"{source} holds no readable CA certificate: {error}") from error

    def trusts(self, chain: Sequence[x509.Certificate]) -> bool:
        """Return whether a chain ends at one of these CAs, and every part of it is valid now.

        ``chain`` begins with the client's own certificate; the TLS handshake has verified that each
        certificate was issued by the next one. It may have been for another of our bundles, and a
        long time ago.
        """
        now = datetime.now(UTC)
        if not all(one.not_valid_before_utc <= now <= one.not_valid_after_utc for one in chain):
            return False
        return any(
            certificate == authority or _signed_by(certificate, authority)
            for certificate in chain
            for authority in self.certificates
        )


class ClientCAs:
    """The CA bundles in force; ``refresh`` reads them again."""

    def __init__(self, options: AuthenticationOptions, api: ApiAccess | None) -> None:
        self._options = options
        self._api = api
        self._warned = ""
        self.clients = CABundle()
        self.proxies = CABundle()
        self.request_header: RequestHeaderOptions | None = None

    @property
    def pem(self) -> str:
        """All CAs that a TLS handshake may accept a client certificate of."""
        return "\n".join(bundle.pem for bundle in (self.clients, self.proxies) if bundle.pem)

    async def refresh(self) -> bool:
        """Read files and ConfigMap; return whether the CAs changed.

        Raises ``ConfigError`` for a bad file and, unless tolerate_lookup_failure is set, for a
        ConfigMap that cannot be read.
        """
        before = self.pem
        options = self._options
        if options.client_ca_file:
            self.clients = _read(options.client_ca_file, "--client-ca-file")
        if options.request_header.ca_file:
            self.proxies = _read(options.request_header.ca_file, "--requestheader-client-ca-file")
            self.request_header = options.request_header
        if not options.skip_lookup and not (
            options.client_ca_file and options.request_header.ca_file
        ):
            await self._look_up()
        return self.pem != before

    async def _look_up(self) -> None:
        if self._api is None:
            return
        try:
            data = (await self._api.get(CONFIG_MAP)).get("data") or {}
            self._take(data)
            self._warned = ""
        except (ApiError, ConfigError, ValueError) as error:
            if not self._options.tolerate_lookup_failure:
                raise ConfigError(
                    f"unable to read the ConfigMap kube-system/extension-apiserver-authentication, "
                    f"and --authentication-tolerate-lookup-failure is false: {error}"
                ) from error
            # Once for each error: the lookup is repeated every minute.
            if self._warned != str(error):
                self._warned = str(error)
                log.warning(
                    "Unable to read the cluster's client CA: client certificates it signed will "
                    "not be known. Usually fixed by a RoleBinding in kube-system to the Role "
                    "extension-apiserver-authentication-reader",
                    err=self._warned,
                )

    def _take(self, data: dict[str, Any]) -> None:
        source = "ConfigMap kube-system/extension-apiserver-authentication"
        if not self._options.client_ca_file and data.get("client-ca-file"):
            self.clients = CABundle.parse(data["client-ca-file"], source)
        if self._options.request_header.ca_file or not data.get("requestheader-client-ca-file"):
            return
        self.proxies = CABundle.parse(data["requestheader-client-ca-file"], source)
        self.request_header = replace(
            self._options.request_header,
            allowed_names=_names(data, "allowed-names"),
            username_headers=_names(data, "username-headers"),
            uid_headers=_names(data, "uid-headers"),
            group_headers=_names(data, "group-headers"),
            extra_headers_prefix=_names(data, "extra-headers-prefix"),
        )


def _names(data: dict[str, Any], key: str) -> tuple[str, ...]:
    return tuple(json.loads(data.get(f"requestheader-{key}") or "[]"))


def _read(path: str, flag: str) -> CABundle:
    try:
        pem = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{flag}: cannot read {path}: {error}") from error
    return CABundle.parse(pem, f"{flag} {path}")


def _signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
