"""Certificates for one test: valid for an hour, or expired."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_SIGNS = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """A certificate authority. `file`: its own certificate, PEM."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("the test's authority")
        builder = _builder(self._name, self._name, self._key.public_key(), timedelta(hours=1))
        constrained = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        # Python 3.13 and later refuse an authority without key usage
        constrained = constrained.add_extension(_SIGNS, critical=True)
        own = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        constrained = constrained.add_extension(own, critical=False)
        self._identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        self.file = folder / "authority.pem"
        self.file.write_bytes(_pem(constrained.sign(self._key, hashes.SHA256())))

    def issue(self, address: str, lasts: timedelta = timedelta(hours=1), name: str = "listener") -> tuple[Path, Path]:
        """Files of a certificate for an IP address or a host, and of its key.

        `lasts`: negative: an expired certificate.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name), self._name, key.public_key(), lasts)
        builder = builder.add_extension(self._identifier, critical=False)
        host = x509.SubjectAlternativeName([_alternative(address)])
        certificate, secret = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        certificate.write_bytes(_pem(builder.add_extension(host, critical=False).sign(self._key, hashes.SHA256())))
        form = serialization.PrivateFormat.PKCS8
        secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
        return certificate, secret


def _alternative(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, lasts: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + lasts)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
