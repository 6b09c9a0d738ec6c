"""What installs the locks: uv with what pip is told, or pip."""

from __future__ import annotations

import base64
import hashlib
import http.server
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

INSTALL = Path("requirements/install.py").resolve()
WHEEL = "locked-1.0-py3-none-any.whl"
#: Where packages come from on this machine is not asked.
ELSEWHERE = ("PIP_", "UV_")

pytestmark = pytest.mark.acceptance


class Index(http.server.ThreadingHTTPServer):
    """An index of one package; notes the clients."""

    def __init__(self, wheel: bytes) -> None:
        self.wheel = wheel
        self.clients: list[str] = []
        super().__init__(("127.0.0.1", 0), _Answer)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/simple"


class _Answer(http.server.BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        self.server.clients.append(self.headers["User-Agent"].partition("/")[0])
        is_wheel = self.path.endswith(".whl")
        body = self.server.wheel if is_wheel else f'<a href="/{WHEEL}">{WHEEL}</a>'.encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream" if is_wheel else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / WHEEL
    module = b"VALUE = 7\n"
    checked = base64.urlsafe_b64encode(hashlib.sha256(module).digest()).rstrip(b"=").decode()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("locked.py", module)
        archive.writestr("locked-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: locked\nVersion: 1.0\n")
        archive.writestr("locked-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("locked-1.0.dist-info/RECORD", f"locked.py,sha256={checked},{len(module)}\n")
    return path


@pytest.fixture
def index(wheel: Path) -> Iterator[Index]:
    with Index(wheel.read_bytes()) as index:
        thread = threading.Thread(target=index.serve_forever, args=(0.01,))
        thread.start()
        yield index
        index.shutdown()
        thread.join()


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """Of an empty environment."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    return tmp_path / "venv/bin/python"


def install(python: Path, lock: Path, **told: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(ELSEWHERE)}
    environment = {**kept, "PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1", "UV_NO_CACHE": "1", **told}
    command = [sys.executable, INSTALL, python, lock]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def lock_of(wheel: Path, content: bytes) -> Path:
    lock = wheel.with_name("lock.txt")
    lock.write_text(f"locked==1.0 --hash=sha256:{hashlib.sha256(content).hexdigest()}\n")
    return lock


def value(python: Path) -> str:
    done = subprocess.run([python, "-c", "import locked; print(locked.VALUE)"], capture_output=True, text=True)
    return done.stdout.strip()


def test_uv_takes_packages_from_where_pip_is_told_to(index: Index, wheel: Path, python: Path) -> None:
    done = install(python, lock_of(wheel, wheel.read_bytes()), PIP_INDEX_URL=index.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert value(python) == "7" and set(index.clients) == {"uv"}


def test_pip_installs_what_uv_cannot_reach(wheel: Path, python: Path) -> None:
    told = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheel.parent), "UV_OFFLINE": "1"}
    done = install(python, lock_of(wheel, wheel.read_bytes()), **told)
    assert done.returncode == 0 and "uv cannot install it, pip does" in done.stderr
    assert value(python) == "7"


def test_other_bytes_than_the_lock_s_are_installed_by_neither(index: Index, wheel: Path, python: Path) -> None:
    done = install(python, lock_of(wheel, b"others"), PIP_INDEX_URL=index.url)
    assert done.returncode != 0 and value(python) == ""
    assert set(index.clients) == {"uv", "pip"}
