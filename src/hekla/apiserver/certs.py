"""The server's own certificate authority and serving certificate.

Made at first start and kept in the data directory; the serving certificate is renewed when it nears
its end or when the addresses change. The CA's key never leaves the directory (mode 0600).
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_CA_YEARS = 10
_SERVING_DAYS = 365
_RENEW_BEFORE = datetime.timedelta(days=30)
_BACKDATE = datetime.timedelta(minutes=5)  # clocks differ a little


@dataclass(frozen=True, slots=True)
class Serving:
    """Where the files are, and the CA to put into a kubeconfig."""

    certificate: Path
    key: Path
    ca_pem: bytes


def write_private(path: Path, data: bytes) -> None:
    """Write a secret: never readable by others, never half-written."""
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def ensure(directory: Path, names: Iterable[str], now: float) -> Serving:
    """Certificates for these host names and addresses, made or renewed as needed."""
    moment = datetime.datetime.fromtimestamp(now, datetime.UTC)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    ca_path, ca_key_path = directory / "ca.crt", directory / "ca.key"
    path, key_path = directory / "serving.crt", directory / "serving.key"
    wanted = tuple(sorted(set(names)))
    if (
        not (ca_path.exists() and ca_key_path.exists())
        or _expires(ca_path) < moment + _RENEW_BEFORE
    ):
        _make_ca(ca_path, ca_key_path, moment)
        path.unlink(missing_ok=True)
    if not _is_good(path, key_path, wanted, moment):
        _make_serving(ca_path, ca_key_path, path, key_path, wanted, moment)
    return Serving(path, key_path, ca_path.read_bytes())


def _expires(path: Path) -> datetime.datetime:
    return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc


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


def _make_ca(path: Path, key_path: Path, moment: datetime.datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hekla-ca")])
    certificate = (
        _builder("hekla-ca", name, key.public_key(), moment)
        .not_valid_after(moment + datetime.timedelta(days=365 * _CA_YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    write_private(key_path, _key_pem(key))
    write_private(path, certificate.public_bytes(serialization.Encoding.PEM))


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


def _make_serving(
    ca_path: Path,
    ca_key_path: Path,
    path: Path,
    key_path: Path,
    names: tuple[str, ...],
    moment: datetime.datetime,
) -> None:
    ca = x509.load_pem_x509_certificate(ca_path.read_bytes())
    ca_key = serialization.load_pem_private_key(ca_key_path.read_bytes(), None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    certificate = (
        _builder("hekla-apiserver", ca.subject, key.public_key(), moment)
        .not_valid_after(moment + datetime.timedelta(days=_SERVING_DAYS))
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
    write_private(key_path, _key_pem(key))
    write_private(path, certificate.public_bytes(serialization.Encoding.PEM))


def _general(names: Iterable[str]) -> list[x509.GeneralName]:
    made: list[x509.GeneralName] = []
    for name in names:
        try:
            made.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            made.append(x509.DNSName(name))
    return made


def _is_good(path: Path, key: Path, names: tuple[str, ...], moment: datetime.datetime) -> bool:
    if not (path.exists() and key.exists()) or _expires(path) < moment + _RENEW_BEFORE:
        return False
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return set(found) >= set(_general(names))
