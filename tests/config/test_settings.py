"""Command line over environment over file over default; and the folder of the sockets."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from nni_manager.config.settings import Settings, load, runtime_directory
from nni_manager.domain.errors import ConfigInvalid, InvalidInput

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home without a settings file."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_defaults() -> None:
    assert load({}, {}) == Settings(
        data_dir=Path.home().resolve() / "nni-experiments",
        host="127.0.0.1",
        port=8080,
        token="",
        tuner_patience_s=60.0,
        safety_poll_s=30.0,
        log_level="info",
    )


def test_each_source_beats_the_next(tmp_path: Path) -> None:
    (tmp_path / "settings.yml").write_text("host: h-file\nport: 1\nlog_level: debug\nTunerPatience: 2m\n")
    environment = {"NNI_MANAGER_DATA": str(tmp_path), "NNI_MANAGER_HOST": "h-variable", "NNI_MANAGER_PORT": "2"}
    settings = load({"port": 3, "host": None}, environment)
    assert (settings.data_dir, settings.port, settings.host) == (tmp_path.resolve(), 3, "h-variable")
    assert (settings.log_level, settings.tuner_patience_s, settings.safety_poll_s) == ("debug", 120.0, 30.0)


def test_every_variable(tmp_path: Path) -> None:
    environment = {
        "NNI_MANAGER_HOST": "::1",
        "NNI_MANAGER_PORT": "65535",
        "NNI_MANAGER_TOKEN": "31337",
        "NNI_MANAGER_READ_TOKEN": "31338",
        "NNI_MANAGER_TUNER_PATIENCE": "90",
        "NNI_MANAGER_SAFETY_POLL": "0.5s",
        "NNI_MANAGER_LOG_LEVEL": "warning",
    }
    assert load({"data_dir": str(tmp_path)}, environment) == Settings(
        data_dir=tmp_path.resolve(),
        host="::1",
        port=65535,
        token="31337",
        read_token="31338",
        tuner_patience_s=90.0,
        safety_poll_s=0.5,
        log_level="warning",
    )


@pytest.mark.parametrize(
    ("text", "allowed"),
    [("true", True), ("false", False), ("root", {0}), ("[root, daemon]", {0, 1}), ('"root, daemon"', {0, 1})],
)
def test_local_users_are_named_or_all(tmp_path: Path, text: str, allowed: object) -> None:
    (tmp_path / "settings.yml").write_text(f"allowLocalUsers: {text}\n")
    assert load({"data_dir": tmp_path}, {}).allow_local_users == allowed
    if not text.startswith("["):
        variable = {"NNI_MANAGER_ALLOW_LOCAL_USERS": text.strip('"')}
        assert load({"data_dir": tmp_path / "other"}, variable).allow_local_users == allowed


@pytest.mark.parametrize("text", ["nobody-of-this-name", "[root, nobody-of-this-name]", "1000", "[]x", "{root: 1}"])
def test_unknown_local_user_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "settings.yml").write_text(f"allowLocalUsers: {text}\n")
    with pytest.raises(ConfigInvalid) as refused:
        load({"data_dir": tmp_path}, {})
    assert "nobody-of-this-name" in str(refused.value) or "nobody" not in text


def test_an_empty_variable_is_not_set() -> None:
    settings = load({}, {"NNI_MANAGER_PORT": "", "NNI_MANAGER_DATA": ""})
    assert (settings.port, settings.data_dir.name) == (8080, "nni-experiments")


def test_bad_variables_are_all_named() -> None:
    with pytest.raises(ConfigInvalid) as refused:
        load({}, {"NNI_MANAGER_PORT": "70000", "NNI_MANAGER_LOG_LEVEL": "loud", "NNI_MANAGER_SAFETY_POLL": "0"})
    assert {problem.field for problem in refused.value.problems} == {
        "NNI_MANAGER_PORT",
        "NNI_MANAGER_SAFETY_POLL",
        "NNI_MANAGER_LOG_LEVEL",
    }


FILES = [
    ("port: eighty\nhosst: x\n", [("port", 1), ("hosst", 2)]),
    ("host: x\ntoken: 31337\n", [("token", 2)]),
    ("host: [x\n", [("", 1)]),
    ("- host\n", [("", 1)]),
]


@pytest.mark.parametrize(("text", "places"), FILES)
def test_a_bad_file_names_its_lines(tmp_path: Path, text: str, places: list[tuple[str, int]]) -> None:
    (tmp_path / "settings.yml").write_text(text)
    with pytest.raises(ConfigInvalid) as refused:
        load({"data_dir": tmp_path}, {})
    assert [(problem.field, problem.line) for problem in refused.value.problems] == places
    assert all(problem.file == str(tmp_path.resolve() / "settings.yml") for problem in refused.value.problems)
    assert "31337" not in str(refused.value)


def test_ports_may_be_left_to_the_daemon(tmp_path: Path) -> None:
    """As `--port 0` and `--trial-port 0` leave them."""
    (tmp_path / "settings.yml").write_text("port: 0\ntrialPort: 0\n")
    in_file = load({"data_dir": tmp_path}, {})
    in_environment = load({}, {"NNI_MANAGER_PORT": "0", "NNI_MANAGER_TRIAL_PORT": "0"})
    assert [(one.port, one.trial_port) for one in (in_file, in_environment)] == [(0, 0)] * 2


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "port: null\n"])
def test_empty_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "settings.yml").write_text(text)
    assert load({"data_dir": tmp_path}, {}) == Settings(data_dir=tmp_path.resolve())


def test_the_token_is_in_no_repr() -> None:
    assert "hunter2" not in repr(load({}, {"NNI_MANAGER_TOKEN": "hunter2", "NNI_MANAGER_READ_TOKEN": "hunter2"}))


@pytest.mark.parametrize("text", [" hunter2 ", "hunter2\r", "\thunter2\n"])
def test_whitespace_around_a_token_is_dropped(tmp_path: Path, text: str) -> None:
    assert load({}, {"NNI_MANAGER_TOKEN": text}).token == "hunter2"
    (tmp_path / "settings.yml").write_text(json.dumps({"token": text}))
    assert load({"data_dir": tmp_path}, {}).token == "hunter2"


@pytest.mark.parametrize("text", ["hunter2\nhunter3", "hunter2\x00", "hunter\u00fc", "\u200bhunter2"])
def test_token_that_fits_no_header_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(
        ConfigInvalid, match=r"environment: NNI_MANAGER_TOKEN: (must be one line of|holds a NUL)"
    ) as refused:
        load({}, {"NNI_MANAGER_TOKEN": text})
    (tmp_path / "settings.yml").write_text(f"port: 1\ntoken: {json.dumps(text)}\n")
    with pytest.raises(
        ConfigInvalid, match=r"settings\.yml:2: token: (must be one line of|holds a NUL character)"
    ) as in_file:
        load({"data_dir": tmp_path}, {})
    assert "hunter" not in f"{refused.value}{in_file.value}"


def test_the_runtime_directory_is_ours_alone(tmp_path: Path) -> None:
    directory = runtime_directory({"XDG_RUNTIME_DIR": str(tmp_path)})
    assert directory == tmp_path / "nni-manager"
    directory.chmod(0o755)
    assert runtime_directory({"XDG_RUNTIME_DIR": str(tmp_path)}) == directory
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@pytest.mark.parametrize("environment", [{}, {"XDG_RUNTIME_DIR": "/no/such/folder"}])
def test_without_a_runtime_directory_of_the_user_it_is_in_tmp(environment: dict[str, str], tmp_path: Path) -> None:
    directory = tmp_path / f"nni-manager-{os.getuid()}"
    assert runtime_directory(environment, tmp_path) == directory
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_runtime_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nni-manager").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    with pytest.raises(InvalidInput, match="is not a folder of your user"):
        runtime_directory({"XDG_RUNTIME_DIR": str(tmp_path)})


def test_runtime_directory_that_is_a_link_or_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "nni-manager").symlink_to("elsewhere")
    with pytest.raises(InvalidInput, match="is not a folder of your user"):
        runtime_directory({"XDG_RUNTIME_DIR": str(tmp_path)})
    (tmp_path / "nni-manager").unlink()
    (tmp_path / "nni-manager").touch()
    with pytest.raises(InvalidInput, match="cannot be created or used: File exists"):
        runtime_directory({"XDG_RUNTIME_DIR": str(tmp_path)})


def test_circular_link_as_settings_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "settings.yml").symlink_to("settings.yml")
    with pytest.raises(ConfigInvalid, match=r"settings\.yml: cannot be read: Too many levels"):
        load({"data_dir": tmp_path}, {})
