"""What is recorded of a code directory in git, and of the Python of a caller."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from nni_manager.api.schemas.provenance import Provenance
from nni_manager.platform_kit.secret_texts import SecretTexts
from nni_manager.provenance import child, collection, repository
from nni_manager.provenance.collection import Asked, collect
from nni_manager.provenance.masked_diff import masked
from trial_runner import processes

pytestmark = pytest.mark.unit

_NOBODY = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
_NO_SECRETS = SecretTexts()


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=n", "-c", "user.email=n@example.org", *words]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **_NOBODY}, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A code directory inside a repository, with one commit."""
    folder = tmp_path / "repository" / "code"
    folder.mkdir(parents=True)
    (folder / "trial.py").write_text("print(1)\n")
    (folder / ".gitignore").write_text("ignored.env\n")
    git(folder, "init", "--quiet", "--initial-branch", "main", "..")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "begin")
    return folder


async def look(folder: Path, secrets: SecretTexts = _NO_SECRETS) -> dict[str, Any]:
    return await repository.look(str(folder), os.environ, secrets)


async def test_commit_branch_and_diff_are_recorded(code: Path) -> None:
    (code / "trial.py").write_text("print(2)\n")
    (code.parent / "elsewhere.py").write_text("not of the code directory\n")
    (code / "new.py").write_text("unknown to git\n")
    (code / "ignored.env").write_text("PASSWORD=hunter22\n")
    found = await look(code)
    assert (found["commit"], found["branch"], found["problem"]) == (git(code, "rev-parse", "HEAD"), "main", "")
    assert "-print(1)\n+print(2)" in found["diff"] and not found["isDiffCut"]
    assert found["untracked"] == ["code/new.py"]
    assert "hunter22" not in repr(found) + found["diff"] and "unknown to git" not in found["diff"]


async def test_recorded_diff_applies_to_the_commit(code: Path) -> None:
    (code / "trial.py").write_text("print(2)\n")
    diff = (await look(code))["diff"]
    git(code, "checkout", "--quiet", ".")
    (code / "changes.diff").write_text(diff)
    git(code, "apply", "changes.diff")
    assert (code / "trial.py").read_text() == "print(2)\n"


async def test_clean_repository_has_no_diff(code: Path) -> None:
    found = await look(code)
    assert (found["diff"], found["untracked"], found["problem"]) == ("", [], "")


async def test_long_diff_is_cut(code: Path) -> None:
    (code / "trial.py").write_text("x = 1\n" * 400_000)
    found = await look(code)
    assert found["isDiffCut"] and len(found["diff"]) <= repository.MOST_DIFF


@pytest.mark.parametrize("kept", [12, 17, 27])
async def test_secret_where_the_diff_is_cut_is_not_kept_in_part(
    code: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    line = 'token = "abcdefghij0123456789"\nend = 1\n'
    (code / "trial.py").write_text(line)
    diff = (await look(code, SecretTexts("never there")))["diff"]
    monkeypatch.setattr(repository, "MOST_DIFF", diff.encode().index(b"+token") + kept)
    found = await look(code, SecretTexts("abcdefghij0123456789"))
    assert found["isDiffCut"] and found["diff"].endswith("-print(1)\n") and "abc" not in found["diff"]


async def test_secret_of_several_lines_is_masked_in_the_diff(code: Path) -> None:
    secret = "first line of it\nsecond line of it\n"
    (code / "trial.py").write_text(f'text = """\n{secret}"""\n')
    asked = Asked(
        code_directory=str(code), python=sys.executable, environment=os.environ, secrets=(secret,), tuner_arguments={}
    )
    diff = (await collect(asked))["code"]["diff"]
    assert "line of it" not in diff and diff.count("+***\n") == 2


@pytest.mark.parametrize(
    "line", ['password = "hunter22"', "api_key: hunter22", 'config["token"] = "hunter22"', "SECRET=hunter22"]
)
async def test_values_that_look_like_secrets_are_masked(code: Path, line: str) -> None:
    (code / "trial.py").write_text(line + "\n")
    found = await look(code)
    assert "hunter22" not in found["diff"] and "***" in found["diff"] and found["maskedValues"] == 1


@pytest.mark.parametrize(
    "line",
    [
        'password: str = "hunter22"',
        'token: Optional[str] = "hunter22"',
        'os.environ.setdefault("WANDB_API_KEY", "hunter22")',
        """{"token": "hunter22'd"}""",
        """token = 'a"hunter22'""",
        'token = "ab\\"hunter22"',
        'token = f"hunter22"',
        "password: hunter22 # the old one",
        "API_KEY=hunter22 # the old one",
        'key = "-----BEGIN PRIVATE KEY-----\\nhunter22\\n-----END PRIVATE KEY-----"',
        "-----BEGIN RSA PRIVATE KEY-----\nhunter22\nabcd+/==\n-----END RSA PRIVATE KEY-----",
    ],
)
async def test_spellings_of_secrets_are_masked(code: Path, line: str) -> None:
    (code / "trial.py").write_text(line + "\n")
    found = await look(code)
    assert "hunter22" not in found["diff"] and "***" in found["diff"] and found["maskedValues"] >= 1


@pytest.mark.parametrize(
    "text",
    [
        "+-----BEGIN PRIVATE KEY-----\n+hunter22\n+abcd\n@@ -1,2 +3,4 @@\n",
        "@@ -1,2 +3,4 @@\n abcd\n hunter22\n ab==\n -----END PRIVATE KEY-----\n",
    ],
)
async def test_parts_of_keys_are_masked(text: str) -> None:
    found, count = await masked(text.encode(), _NO_SECRETS)
    assert "hunter22" not in found and count == 1 and found.count("\n") == text.count("\n") and "@@" in found


async def test_long_diffs_are_masked_in_time() -> None:
    lines = ("+password: " + "a " * 500, "+token" * 1000, "+-----BEGIN PRIVATE KEY-----", "+" + "A" * 1000)
    text = "\n".join(line for line in lines for _ in range(250)).encode()
    async with asyncio.timeout(20):
        await masked(text, _NO_SECRETS)


async def test_code_that_only_names_secrets_is_kept(code: Path) -> None:
    (code / "trial.py").write_text("token = tokenizer.next()\nkeys = sorted(tokens)\n")
    found = await look(code)
    assert "+token = tokenizer.next()\n+keys = sorted(tokens)" in found["diff"] and found["maskedValues"] == 0


async def test_known_secrets_and_logins_are_masked(code: Path) -> None:
    (code / "trial.py").write_text("start('open sesame')\n")
    git(code, "remote", "add", "origin", "https://me:pass1234@example.org/code.git")
    found = await look(code, SecretTexts("open sesame"))
    assert "open sesame" not in found["diff"] and "pass1234" not in found["remote"]
    assert found["remote"].endswith("example.org/code.git")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that leaves the file `ran` next to it."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    program.chmod(stat.S_IRWXU)
    return program


def _has_run(program: Path) -> bool:
    return (program.parent / "ran").exists()


@pytest.mark.parametrize(
    "name",
    [
        "core.fsmonitor",
        "diff.external",
        "diff.shown.textconv",
        "diff.shown.command",
        "core.pager",
        "filter.odd.name.clean",
        "filter.odd.name.process",
        "filter.odd.name.smudge",
    ],
)
async def test_programs_of_the_repository_are_not_run(code: Path, program: Path, name: str) -> None:
    (code / ".gitattributes").write_text("*.py diff=shown filter=odd.name\n")
    git(code, "config", "filter.odd.name.required", "true")
    git(code, "config", name, str(program))
    (program.parent / "ran").unlink(missing_ok=True)  # git itself, for the configuration
    (code / "trial.py").write_text("print(2)\n")
    assert "+print(2)" in (await look(code))["diff"]
    assert not _has_run(program)


async def test_hooks_of_the_repository_are_not_run(code: Path, program: Path) -> None:
    hook = code.parent / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    shutil.copy(program, hook)
    (code / "trial.py").write_text("print(2)\n")
    assert "+print(2)" in (await look(code))["diff"]
    assert not _has_run(program)


async def test_programs_of_a_submodule_are_not_run(code: Path, program: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "model.py").write_text("print(1)\n")
    git(other, "init", "--quiet", ".")
    git(other, "add", ".")
    git(other, "commit", "--quiet", "--message", "begin")
    git(code, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "other")
    git(code, "commit", "--quiet", "--message", "add")
    (code / "other" / ".gitattributes").write_text("*.py filter=odd\n")
    (code / "other" / "model.py").write_text("print(2)\n")
    git(code / "other", "config", "filter.odd.clean", str(program))
    (code / "trial.py").write_text("print(2)\n")
    assert "+print(2)" in (await look(code))["diff"]
    assert not _has_run(program)


async def test_missing_objects_are_not_fetched(code: Path, program: Path) -> None:
    git(code, "remote", "add", "origin", str(code.parent))
    for name, value in (("promisor", "true"), ("partialclonefilter", "blob:none"), ("uploadpack", str(program))):
        git(code, "config", f"remote.origin.{name}", value)
    git(code, "config", "extensions.partialClone", "origin")
    blob = git(code, "rev-parse", "HEAD:code/trial.py")
    (code.parent / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    (code / "trial.py").write_text("print(2)\n")
    await look(code)
    assert not _has_run(program)


async def test_filter_of_the_user_is_used(code: Path, tmp_path: Path, program: Path) -> None:
    """Else each file that Git LFS keeps counts as changed."""
    (tmp_path / ".gitconfig").write_text('[filter "upper"]\n\tclean = tr a-z A-Z\n')
    (code / ".gitattributes").write_text("trial.py filter=upper\n")
    git(code, "config", "filter.upper.clean", "tr a-z A-Z")
    git(code, "add", "--renormalize", ".")
    git(code, "add", ".")
    git(code, "commit", "--quiet", "--message", "upper")
    git(code, "config", "filter.upper.clean", str(program))
    os.utime(code / "trial.py", (1, 1))  # its content is compared
    environment = {**os.environ, "HOME": str(tmp_path)}
    assert (await repository.look(str(code), environment, _NO_SECRETS))["diff"] == ""
    assert not _has_run(program)


async def test_filter_that_cannot_be_turned_off_is_a_problem(code: Path, program: Path) -> None:
    (code / ".gitattributes").write_text("*.py filter=a=b\n")
    git(code, "config", "filter.a=b.clean", str(program))
    (code / "trial.py").write_text("print(2)\n")
    assert "filter" in (await look(code))["problem"]
    assert not _has_run(program)


async def test_folder_without_git_says_so(tmp_path: Path) -> None:
    found = await look(tmp_path)
    assert found["commit"] == "" and "not in a git repository" in found["problem"]
    found = await repository.look(str(tmp_path), {"PATH": "/nowhere"}, _NO_SECRETS)
    assert "program git is not on the PATH" in found["problem"]
    assert (await look(tmp_path / "missing"))["problem"]


async def test_repository_without_commits_says_so(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", ".")
    assert "nothing has been committed" in (await look(tmp_path))["problem"]


async def test_packages_are_those_of_the_python() -> None:
    found = await collection.look_at_python(sys.executable, os.environ)
    packages = {one["name"]: one["version"] for one in found["packages"]}
    assert found["version"] == ".".join(map(str, sys.version_info[:3])) and found["problem"] == ""
    expected = {_plain(one.metadata["Name"]): one.version for one in metadata.distributions()}
    assert {_plain(name) for name in packages} >= set(expected)
    assert packages["numpy"] == expected["numpy"]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("text", ["exit 1", "echo nonsense", "echo 1"])
async def test_program_that_is_not_python_is_reported(tmp_path: Path, text: str) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(stat.S_IRWXU)
    found = await collection.look_at_python(str(program), os.environ)
    assert found["packages"] == [] and found["problem"]


async def test_command_that_hangs_is_ended(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(child.NoAnswer, match="took longer"):
        await child.read(
            ["sh", "-c", "sleep 50 & sleep 50"], directory="/", environment=os.environ, most=10, patience_s=0.1
        )
    assert time.monotonic() - began < 10


async def test_record_matches_rest_schema(code: Path) -> None:
    (code / "trial.py").write_text("use('from the environment')\n")
    environment = {**os.environ, "MY_TOKEN": "from the environment"}
    record: dict[str, Any] = await collect(
        Asked(
            code_directory=str(code),
            python=sys.executable,
            environment=environment,
            tuner_arguments={"seed": 7, "optimize_mode": "minimize"},
        )
    )
    of_file = {"experimentFile": "", "experimentFileDigest": ""}
    assert Provenance.model_validate(record).model_dump(by_alias=True) == {**record, **of_file}
    assert record["seed"] == 7 and "from the environment" not in str(record)


async def test_cancelled_record_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the other part ends at once."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(stat.S_IRWXU)

    async def looks(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(repository, "look", looks)
    before = processes.children(os.getpid())
    asked = Asked(code_directory="/", python=str(program), environment=os.environ, tuner_arguments={})
    collecting = asyncio.create_task(collect(asked))
    while processes.children(os.getpid()) == before:  # noqa: ASYNC110 (no event)
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    collecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await collecting
    assert processes.children(os.getpid()) == before
