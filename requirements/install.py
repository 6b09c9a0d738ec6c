"""Installs what a lock says, to the byte, into a virtual environment: `python requirements/install.py PYTHON LOCK`.

By uv, which is installed first, beside the Python that runs this, and without arguments is all that is installed. It
takes a tenth of pip's time; where it cannot be had, or cannot reach what pip is told to reach, pip does the same.
Only Python's own library is here when this runs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
_UV_LOCK = Path(__file__).with_name("uv.txt")
#: What pip may be told, and the variable by which uv is.
_TOLD = {"index-url": "UV_DEFAULT_INDEX", "cert": "SSL_CERT_FILE"}


def main(arguments: list[str] | None = None) -> int:
    """The exit status of what installed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", nargs="?", type=Path, help="interpreter of the environment; pip is not needed in it")
    parser.add_argument("lock", nargs="?", type=Path, help="file of requirements with their hashes")
    parser.add_argument("--compile", action="store_true", help="all of it, and not each module when it is imported")
    asked = parser.parse_args(arguments)
    if asked.lock is None:
        _install_uv()
        return 0
    uv = _uv()
    if uv is not None and _by_uv(uv, asked) == 0:
        return 0
    print(f"{asked.lock}: uv cannot install it, pip does", file=sys.stderr)
    return _by_pip(asked)


def _uv() -> Path | None:
    """Its program, beside this interpreter; None: it cannot be had."""
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        _install_uv()
    return uv if uv.exists() else None


def _install_uv() -> None:
    """The release that its lock says, in the place of another one."""
    subprocess.run([*_PIP, "install", "--quiet", "--require-hashes", "-r", _UV_LOCK])


def _by_uv(uv: Path, asked: argparse.Namespace) -> int:
    compiled = ["--compile-bytecode"] if asked.compile else []
    command = [uv, "pip", "install", "--quiet", "--python", asked.python, *compiled]
    return subprocess.run([*command, "--require-hashes", "-r", asked.lock], env=_environment()).returncode


def _environment() -> dict[str, str]:
    """With what pip is told where uv is not."""
    told = _configured()
    return {**{name: told[key] for key, name in _TOLD.items() if key in told}, **os.environ}


def _configured() -> dict[str, str]:
    """What pip goes by, as `index-url`: its variables first, then its files."""
    listed = subprocess.run([*_PIP, "config", "list"], stdout=subprocess.PIPE, text=True).stdout
    pairs = (line.partition("=") for line in listed.splitlines())
    return {key.rpartition(".")[2]: value.strip("'") for key, _, value in reversed(list(pairs))}


def _by_pip(asked: argparse.Namespace) -> int:
    compiled = [] if asked.compile else ["--no-compile"]
    command = [*_PIP, "--python", asked.python, "install", "--quiet", *compiled]
    return subprocess.run([*command, "--require-hashes", "-r", asked.lock]).returncode


if __name__ == "__main__":
    sys.exit(main())
