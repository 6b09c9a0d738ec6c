"""Persistent storage: claims, NFS exports, file shares; each is a folder."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.kubernetes.kubelet.volumes import NotMounted


class Storage:
    """All storage of a cluster."""

    def __init__(self, folder: Path, exports: dict[str, Path]) -> None:
        self._folder = folder
        self.exports = dict(exports)

    def claim(self, namespace: str, name: str) -> Path:
        return _made(self._folder / "claims" / namespace / name)

    def nfs(self, server: str, path: str) -> Path:
        """The folder of an export or of a path below it."""
        path = path.rstrip("/") or "/"
        for address, folder in self.exports.items():
            export_server, _, export = address.partition(":")
            export = export.rstrip("/") or "/"
            if server == export_server and (path == export or path.startswith(export.rstrip("/") + "/")):
                below = folder / path[len(export) :].strip("/")
                if not below.is_dir():
                    raise NotMounted(
                        f"mount.nfs: mounting {server}:{path} failed, reason given by server: No such file or directory"
                    )
                return below
        raise NotMounted(
            f"mount failed: exit status 32, mount.nfs: access denied by server while mounting {server}:{path}"
        )

    def azure(self, secret: dict[str, bytes], share: str) -> Path:
        account = secret.get("azurestorageaccountname", b"").decode()
        if not account or not secret.get("azurestorageaccountkey"):
            raise NotMounted("secret has no azurestorageaccountname or azurestorageaccountkey")
        return _made(self._folder / "shares" / account / share)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
