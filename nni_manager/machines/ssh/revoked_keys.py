"""Files of `RevokedHostKeys`: lists of public keys, or OpenSSH's binary KRLs (PROTOCOL.krl of OpenSSH)."""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import os
import re
import shlex
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import asyncssh

_MAGIC = b"SSHKRL\n\0"
#: Bytes between the magic word and the two strings before the first section: format, number, date, flags.
_HEAD = struct.Struct(">IQQQ")
_FORMAT = 1
#: Depth of included files, as in `ssh`.
_MOST_INCLUDES = 16
_CERTIFICATES, _KEYS, _SHA1, _SIGNATURE, _SHA256 = range(1, 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokedKeys:
    """Keys that no host may show.

    A login shows the authority of a certificate, not its number: an authority that has revoked some certificates is not
    trusted for any.
    """

    blobs: frozenset[bytes] = frozenset()
    #: SHA-1 and SHA-256 of blobs, raw.
    fingerprints: frozenset[bytes] = frozenset()
    #: Blobs of authorities that have revoked certificates; empty bytes: any authority.
    authorities: frozenset[bytes] = frozenset()
    #: An unreadable file, and the reason; then every key counts as revoked, as in `ssh`. Empty: all were read.
    problem: str = ""

    @classmethod
    def read(cls, paths: Sequence[str]) -> Self:
        blobs, fingerprints, authorities = set[bytes](), set[bytes](), set[bytes]()
        for path in paths:
            try:
                data = Path(path).read_bytes()
                sections = _sections(data) if data.startswith(_MAGIC) else _listed(data)
                for kind, content in sections:
                    if kind == _CERTIFICATES:
                        authorities.add(_string(content, 0)[0])
                    elif kind in (_SHA1, _SHA256):
                        fingerprints.update(_strings(content))
                    else:
                        blobs.update(_strings(content))
            except OSError as error:
                return cls(problem=f"{path}: {error.strerror}")
            except (ValueError, struct.error) as error:
                return cls(problem=f"{path}: {error}")
        return cls(blobs=frozenset(blobs), fingerprints=frozenset(fingerprints), authorities=frozenset(authorities))

    def has(self, key: asyncssh.SSHKey) -> bool:
        blob = key.public_data
        digests = {hashlib.sha1(blob, usedforsecurity=False).digest(), hashlib.sha256(blob).digest()}
        return bool(self.problem) or blob in self.blobs or not self.fingerprints.isdisjoint(digests)

    @property
    def listed(self) -> list[asyncssh.SSHKey]:
        """The keys of `blobs` whose kinds asyncssh knows."""
        found = []
        for blob in self.blobs:
            with suppress(asyncssh.KeyImportError):
                found.append(asyncssh.public_key.decode_ssh_public_key(blob))
        return found

    def distrusts(self, authority: asyncssh.SSHKey) -> bool:
        """Whether certificates of an authority are refused. asyncssh does not expose the key in a certificate: if keys
        are revoked by fingerprint, all certificates are refused."""
        return bool(self.fingerprints) or not self.authorities.isdisjoint((b"", authority.public_data))


def files_of_machine(config: Path, host: str) -> list[str] | None:
    """The files of `RevokedHostKeys` in the machine's own `ssh` configuration; None: not set.

    Only this option is read, as `ssh` accepts more kinds of values than asyncssh. Of `Match` only ``all`` applies.
    """
    for words in _applying(config, host):
        if words[0].lower() == "revokedhostkeys":
            return [] if words[1:] == ["none"] else words[1:]
    return None


def _applying(config: Path, host: str, depth: int = 0) -> Iterator[list[str]]:
    """The lines of a file, and of its included files, that apply to a host."""
    applies = True
    for line in _lines(config):
        option, arguments = line[0].lower(), line[1:]
        if option == "host":
            applies = _matches(host, arguments)
        elif option == "match":
            applies = [word.lower() for word in arguments] == ["all"]
        elif applies and option == "include" and depth < _MOST_INCLUDES:
            for pattern in arguments:
                for path in sorted(glob.glob(os.path.join(config.parent, pattern))):
                    yield from _applying(Path(path), host, depth + 1)
        elif applies:
            yield line


def _lines(config: Path) -> Iterator[list[str]]:
    try:
        text = config.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        with suppress(ValueError):  # an unbalanced quotation mark
            if words := shlex.split(re.sub(r"^(\s*\w+)\s*=\s*", r"\1 ", line), comments=True):
                yield words


def _matches(host: str, patterns: Sequence[str]) -> bool:
    if any(fnmatch.fnmatchcase(host, pattern[1:]) for pattern in patterns if pattern.startswith("!")):
        return False
    return any(fnmatch.fnmatchcase(host, pattern) for pattern in patterns)


def _listed(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Public keys, one per line; other lines are skipped, as in `ssh`."""
    for line in data.splitlines():
        try:
            blob = asyncssh.import_public_key(line).public_data
        except (asyncssh.KeyImportError, ValueError):
            continue
        yield _KEYS, struct.pack(">I", len(blob)) + blob


def _sections(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and content of each section of a KRL. Raises ValueError, struct.error."""
    form, *_ = _HEAD.unpack_from(data, len(_MAGIC))
    if form != _FORMAT:
        raise ValueError(f"KRL format {form} is unknown")
    at = len(_MAGIC) + _HEAD.size
    for _ in ("reserved", "comment"):
        _, at = _string(data, at)
    while at < len(data) and data[at] != _SIGNATURE:
        kind = data[at]
        content, at = _string(data, at + 1)
        if kind not in (_CERTIFICATES, _KEYS, _SHA1, _SHA256):
            raise ValueError(f"KRL section {kind} is unknown")
        yield kind, content


def _strings(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        found, at = _string(data, at)
        yield found


def _string(data: bytes, at: int) -> tuple[bytes, int]:
    """A string of the SSH protocol, and the offset behind it."""
    (length,) = struct.unpack_from(">I", data, at)
    end = at + 4 + length
    if end > len(data):
        raise ValueError("the KRL is truncated")
    return data[at + 4 : end], end
