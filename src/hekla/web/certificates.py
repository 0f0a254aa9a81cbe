"""Certificates in memory: a certificate authority and its serving certificates.

PEM in, PEM out, the time as an argument; callers store them in files or a Secret.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_CA_DAYS = 3650
_SERVING_DAYS = 365
_RENEW_BEFORE = datetime.timedelta(days=30)
_BACKDATE = datetime.timedelta(minutes=5)  # tolerate clock skew


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, as PEM."""

    certificate: bytes
    key: bytes


def _moment(now: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(now, datetime.UTC)


def new_authority(now: float, name: str = "hekla-ca") -> Pair:
    """Return a new certificate authority for serving certificates."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(name, issuer, key.public_key(), _moment(now))
        .not_valid_after(_moment(now) + datetime.timedelta(days=_CA_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key))


def new_serving(
    authority: Pair, names: Iterable[str], now: float, *, subject: str = "hekla"
) -> Pair:
    """Return a certificate for host names and addresses, signed by `authority`."""
    ca = x509.load_pem_x509_certificate(authority.certificate)
    ca_key = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    certificate = (
        _builder(subject, ca.subject, key.public_key(), _moment(now))
        .not_valid_after(_moment(now) + datetime.timedelta(days=_SERVING_DAYS))
        .add_extension(x509.SubjectAlternativeName(_general(names)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
        .sign(ca_key, hashes.SHA256())
    )
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key))


def needs_renewal(certificate: bytes, now: float, names: Iterable[str] = ()) -> bool:
    """Return whether a certificate expires soon or does not cover these names."""
    loaded = x509.load_pem_x509_certificate(certificate)
    if loaded.not_valid_after_utc < _moment(now) + _RENEW_BEFORE:
        return True
    wanted = set(_general(names))
    if not wanted:
        return False
    covered = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return not wanted <= set(covered)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _builder(
    subject: str, issuer: x509.Name, key: ec.EllipticCurvePublicKey, moment: datetime.datetime
) -> x509.CertificateBuilder:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - _BACKDATE)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general(names: Iterable[str]) -> list[x509.GeneralName]:
    made: list[x509.GeneralName] = []
    for name in names:
        try:
            made.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            made.append(x509.DNSName(name))
    return made
