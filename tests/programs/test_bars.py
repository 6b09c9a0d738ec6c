"""Progress bars: of whichever library is installed."""

from __future__ import annotations

import pytest

from nni_manager.programs import bars, progress
from nni_manager.programs.progress import LineDisplay
from tests.cli.fake_manager import state

pytestmark = pytest.mark.unit


def now(ended: int) -> progress.Progress:
    return progress.read(state(counts={"SUCCEEDED": ended, "RUNNING": 1}))


@pytest.mark.parametrize("kind", [bars.RichBar, bars.TqdmBar])
def test_a_bar_shows_the_trials(kind: type[bars.Display], capfd: pytest.CaptureFixture[str]) -> None:
    bar = kind()
    for ended in range(4):
        bar.show(now(ended))
    bar.note("Waiting: for [the] tuner")
    bar.close(now(10))
    shown = capfd.readouterr().err
    assert "10/10" in shown and "Waiting: for [the] tuner" in shown


@pytest.mark.parametrize(("missing", "kind"), [((), bars.RichBar), (("rich",), bars.TqdmBar)])
def test_the_first_that_is_installed_is_taken(
    missing: tuple[str, ...], kind: type[bars.Display], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bars, "find_spec", lambda name: None if name in missing else object())
    assert isinstance(bars.display(), kind)


def test_without_either_it_is_a_line_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bars, "find_spec", lambda name: None)
    assert isinstance(bars.display(), LineDisplay)
