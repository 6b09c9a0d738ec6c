"""A temporary authority, the server's certificate, and client certificates."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_PEM = serialization.Encoding.PEM


@dataclass(frozen=True)
class Pair:
    """A certificate with its key, as PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """Stored in a folder, so that a restarted server has the same identity."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "ca.pem").exists():
            self._make()
        self._key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        self.certificate = (folder / "ca.pem").read_bytes()
        self._issuer = x509.load_pem_x509_certificate(self.certificate).subject

    def server_context(self) -> ssl.SSLContext:
        """TLS context of the server; client certificates are optional."""
        chain = self._folder / "server.pem"
        if not chain.exists():
            names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            pair = self._signed("kube-apiserver", [], ExtendedKeyUsageOID.SERVER_AUTH, names)
            chain.write_bytes(pair.certificate + pair.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain)
        context.load_verify_locations(cadata=self.certificate.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def client(self, user: str, groups: list[str]) -> Pair:
        return self._signed(user, groups, ExtendedKeyUsageOID.CLIENT_AUTH, [])

    def _make(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        built = (
            _builder(name, name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        (self._folder / "ca.key").write_bytes(_pem(key))
        (self._folder / "ca.pem").write_bytes(built.sign(key, hashes.SHA256()).public_bytes(_PEM))

    def _signed(
        self, name: str, groups: list[str], usage: x509.ObjectIdentifier, names: list[x509.GeneralName]
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [x509.NameAttribute(NameOID.COMMON_NAME, name)]
            + [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        )
        authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        built = (
            _builder(subject, self._issuer, key.public_key())
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(authority_key, critical=False)
        )
        if names:
            built = built.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return Pair(built.sign(self._key, hashes.SHA256()).public_bytes(_PEM), _pem(key))


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=2))
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
