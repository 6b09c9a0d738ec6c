"""Makes the keys of `docker-compose.yml`: of the manager, and of the worker as a host.

    python make_keys.py SSH_FOLDER WORKER_FOLDER OWNER

SSH_FOLDER becomes the `~/.ssh` of the manager and belongs to the user id OWNER. WORKER_FOLDER gets the public key of
the manager and the host key of the worker. Existing keys stay, so the script can run before each start.
"""

import os
import sys
from pathlib import Path

import asyncssh

HOST = "worker"


def main(ssh: Path, worker: Path, owner: int) -> None:
    manager_key = _key(ssh / "id_ed25519", "manager")
    host_key = _key(worker / "ssh_host_ed25519_key", HOST)
    _write(worker / "authorized_keys", manager_key, 0o644)
    known = ssh / "known_hosts"
    lines = known.read_text().splitlines() if known.exists() else []
    # only the line of the worker: others may be yours
    lines = [line for line in lines if not line.startswith(f"{HOST} ")]
    _write(known, "\n".join([*lines, f"{HOST} {host_key}"]), 0o600)
    for path in (ssh, *ssh.iterdir()):
        os.chown(path, owner, owner)
    ssh.chmod(0o700)
    worker.chmod(0o755)


def _key(file: Path, comment: str) -> str:
    """Makes the private key unless it exists, and returns the public one."""
    if not file.exists():
        private = asyncssh.generate_private_key("ssh-ed25519", comment=comment)
        _write(file, private.export_private_key().decode(), 0o600)
    return asyncssh.read_private_key(file).export_public_key().decode().strip()


def _write(file: Path, text: str, mode: int) -> None:
    draft = file.with_name(f"{file.name}.new")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="ascii") as opened:
        opened.write(text.strip() + "\n")
    draft.replace(file)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
