"""The third party's package, installed normally, only for these tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent / "nni-hive"
#: `test_third_party_contract` runs the package's own suite, with our marks.
collect_ignore = ["nni-hive"]
sys.path.append(str(PACKAGE / "tests"))


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder for the path of processes that need the plug-in."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index"]
    subprocess.run(
        [*pip, "--no-deps", "--no-cache-dir", "--no-build-isolation", "--target", str(target), str(PACKAGE)], check=True
    )
    return target


@pytest.fixture
def found_here(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Add it to this process's path, too."""
    monkeypatch.syspath_prepend(str(installed))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "nni_hive"]:
        del sys.modules[name]
