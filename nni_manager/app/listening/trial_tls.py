"""The trial listener's certificate, the authority that runners trust, and a check that both match."""

from __future__ import annotations

import ssl
import time
from pathlib import Path
from urllib.parse import urlsplit

from nni_manager.config.settings import Settings
from nni_manager.domain.errors import InvalidInput

#: Days before a certificate's end from which a warning is given.
SOON_DAYS = 14
#: Seconds for which a verdict on a certificate, and a check of its files, are reused.
JUDGED_S = 60.0
LOOKED_S = 1.0
_FIX = "name a certificate and its key, PEM, with trialTlsCertificate and trialTlsKey"
_ROUNDS = 8


class TrialTls:
    """The certificate, read again when its files change, so that it can be renewed while the daemon runs."""

    def __init__(self, certificate: Path, key: Path, authority: Path) -> None:
        """`authority`: PEM file that runners trust, for example a self-signed certificate itself."""
        self._files = certificate, key, authority
        self._read: tuple[int, ...] = ()
        self._looked_s = float("-inf")
        #: The TLS context of all connections; a renewed certificate applies to later ones.
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.num_tickets = 0  # runners keep their connection and never resume a session
        #: PEM.
        self.authority = ""
        #: Cached verdict of `trouble`: (host, identity of the files, sentence, valid until on the monotonic clock).
        self._judged: tuple[str, tuple[int, ...], str, float] = ("", (), "", 0.0)

    @property
    def is_fresh(self) -> bool:
        """Whether the files were checked within `JUDGED_S`."""
        return time.monotonic() - self._looked_s < LOOKED_S

    def refresh(self) -> None:
        """Read the files again if they changed. Blocks. Raises InvalidInput for an invalid certificate or key."""
        certificate, key, authority = self._files
        self._looked_s = time.monotonic()
        try:
            now = tuple(file.stat().st_mtime_ns for file in self._files)
            if now == self._read:
                return
            text = authority.read_text("ascii")
            client_context(text)
            self.context.load_cert_chain(certificate, key)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            reason = getattr(error, "strerror", None) or str(error)
            sentence = f"the trial listener's certificate {certificate} cannot be used ({reason}); {_FIX}"
            raise InvalidInput(sentence) from None
        self.authority, self._read = text, now

    def trouble(self, host: str) -> str:
        """Why runners that reach the listener as `host` refuse its certificate; empty if they accept it.

        Cached for `JUDGED_S` and these files, because a handshake that loads all authorities costs more than a trial.
        """
        of, read, refusal, until_s = self._judged
        if (of, read) != (host, self._read) or time.monotonic() >= until_s:
            refusal = self._refusal(host)
            self._judged = (host, self._read, refusal, time.monotonic() + JUDGED_S)
        return refusal

    def _refusal(self, host: str) -> str:
        try:
            self.days_left(host)
        except InvalidInput as error:
            return str(error)
        return ""

    def days_left(self, host: str) -> float:
        """Days until the certificate at `host` expires. Call this after `refresh`.

        Raises InvalidInput with a runner's error if it would refuse the certificate.
        """
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        runner = client_context(self.authority).wrap_bio(to_client, to_server, server_hostname=host)
        listener = self.context.wrap_bio(to_server, to_client, server_side=True)
        try:
            for _ in range(_ROUNDS):
                _step(runner)
                _step(listener)
        except ssl.SSLCertVerificationError as error:
            raise InvalidInput(
                f"trial runners that reach this machine as {host} refuse the certificate {self._files[0]}"
                f" ({error.verify_message}); {_FIX}, valid for {host} and today"
            ) from None
        found = (runner.getpeercert() or {}).get("notAfter", "")
        return (ssl.cert_time_to_seconds(str(found)) - time.time()) / 86_400


def of(settings: Settings) -> TrialTls | None:
    """The TLS of the trial listener; None: plain HTTP. Raises InvalidInput."""
    certificate, key = settings.trial_tls_certificate, settings.trial_tls_key
    if not certificate and not key:
        return None
    if not certificate or not key:
        raise InvalidInput("only one of trialTlsCertificate and trialTlsKey is set; set both")
    authority = settings.trial_tls_authority or certificate
    tls = TrialTls(*(settings.data_dir / file for file in (certificate, key, authority)))
    tls.refresh()
    return tls


def authority_of(settings: Settings, tls: TrialTls | None) -> str:
    """PEM certificates that runners trust in addition to their machine's, or empty. Raises InvalidInput."""
    if tls is not None and not settings.trial_url:
        return tls.authority
    if not settings.trial_tls_authority:
        return ""
    try:
        return (settings.data_dir / settings.trial_tls_authority).read_text("ascii")
    except (OSError, ValueError) as error:
        raise InvalidInput(f"trialTlsAuthority: {settings.trial_tls_authority} cannot be read ({error})") from None


def require_url(url: str) -> None:
    """Check the URL. Raises InvalidInput."""
    parts = urlsplit(url)
    if url and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise InvalidInput(f"trialUrl: {url} is not an address; write, for example, https://manager.example.org:8443")


def client_context(authority: str) -> ssl.SSLContext:
    """A context like the runner's. Raises ValueError for a text without a certificate."""
    context = ssl.create_default_context()
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # trust the given certificates without their issuer
    context.load_verify_locations(cadata=authority)
    return context


def _step(side: ssl.SSLObject) -> None:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        pass
