import asyncio
import ssl
import stat

import pytest
from cryptography import x509

from proreus.base.errors import ConfigError
from proreus.server.certificates import ServingCertificate, self_signed
from proreus.server.options import ServingOptions, SniCertificate


def test_self_signed_names_the_local_host():
    certificate = x509.load_pem_x509_certificate(self_signed())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


def test_a_cert_dir_is_filled_once_and_then_kept(tmp_path):
    options = ServingOptions(cert_dir=str(tmp_path / "certs"))
    ServingCertificate(options)
    certificate, key = (tmp_path / "certs" / f"kube-scheduler.{end}" for end in ("crt", "key"))
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    before = certificate.read_bytes(), key.read_bytes()
    ServingCertificate(options)
    assert (certificate.read_bytes(), key.read_bytes()) == before
    assert b"PRIVATE" not in before[0]


def test_a_missing_certificate_is_named():
    options = ServingOptions(tls_cert_file="/no.crt", tls_private_key_file="/no.key")
    text = r"cannot serve with certificate /no\.crt and key /no\.key"
    with pytest.raises(ConfigError, match=text):
        ServingCertificate(options)


def test_ciphers_and_version_are_as_asked():
    options = ServingOptions(
        tls_cipher_suites=("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256"),
        tls_min_version="VersionTLS12",
    )
    context = ServingCertificate(options).context
    below_13 = {c["name"] for c in context.get_ciphers() if c["protocol"] != "TLSv1.3"}
    assert below_13 == {"ECDHE-RSA-AES256-GCM-SHA384"}
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_client_certificates_are_requested_only_with_a_ca(authority):
    serving = ServingCertificate(ServingOptions())
    serving.trust_clients("")
    assert serving.context.verify_mode == ssl.CERT_NONE
    serving.trust_clients(authority.pem)
    assert serving.context.verify_mode == ssl.CERT_OPTIONAL


async def test_the_certificate_is_chosen_by_server_name(serve, issue, authority, tmp_path):
    def pair(name, *dns):
        certificate, key = issue(name, issuer=authority, dns=dns).write(tmp_path, name)
        return SniCertificate(certificate, key)

    serving = ServingOptions(tls_sni_cert_keys=(pair("one", "one.test"), pair("any", "*.any.test")))
    client, _ = await serve(serving=serving)
    names = {}
    for asked in ("one.test", "x.any.test", "other.test"):
        answer, _ = await client("/healthz", server_name=asked)
        assert answer.status == 200
        names[asked] = await _served(client, asked)
    assert names["one.test"] == "one"
    assert names["x.any.test"] == "any"
    assert names["other.test"].startswith("localhost@")


async def _served(client, name):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    port = int(client._base.rpartition(":")[2])
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    subject = x509.load_der_x509_certificate(der).subject
    return subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value
