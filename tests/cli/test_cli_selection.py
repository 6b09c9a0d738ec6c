"""The experiment that an ID, its beginning, or no ID chooses."""

from __future__ import annotations

import pytest
from fake_manager import FakeManager, state

from nni_manager.cli.experiment.selection import choose, choose_closed, choose_open
from nni_manager.domain.errors import InvalidInput, NotFound

pytestmark = pytest.mark.unit


@pytest.fixture
def client(manager: FakeManager) -> FakeManager:
    manager.add(state("abc"), state("abd", "DONE"), state("xyz", "STOPPED"), state("xy", "STOPPED"))
    return manager


@pytest.mark.parametrize(
    ("given", "expected"), [("abc", "abc"), ("abd*", "abd"), ("xyz", "xyz"), ("xy", "xy"), ("xyz*", "xyz")]
)
def test_choose_one_experiment(client: FakeManager, given: str, expected: str) -> None:
    assert choose(client, given) == expected


def test_no_id_chooses_the_only_open_experiment(client: FakeManager) -> None:
    client.known["abd"]["status"] = "STOPPED"
    assert choose(client, None) == "abc"
    assert choose_open(client, []) == ["abc"]


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ("ab", InvalidInput, "ab is ambiguous: abc, abd; give more of the id"),
        (None, InvalidInput, "2 experiments are open: abc, abd; give the ID of one"),
        ("nope", NotFound, "cannot find experiment nope; `nnictl experiment list --all`"),
    ],
)
def test_refusal_lists_existing_experiments(client: FakeManager, given: str | None, error: type, words: str) -> None:
    with pytest.raises(error, match=words.replace("(", "\\(")):
        choose(client, given)


@pytest.mark.parametrize("given", ["", " "])
def test_an_empty_id_means_no_experiment(manager: FakeManager, given: str) -> None:
    manager.add(state("abc"))
    for choose_some in (choose_open, choose_closed):
        with pytest.raises(InvalidInput, match="the ID is empty"):
            choose_some(manager, ["abc", given])
    with pytest.raises(InvalidInput, match="the ID is empty"):
        choose(manager, given)


def test_nothing_is_open(manager: FakeManager) -> None:
    with pytest.raises(NotFound, match="no experiment is open, so an ID is required"):
        choose(manager, None)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["ab*"], ["abc", "abd"]),
        (["abd", "abc", "abd"], ["abd", "abc"]),
        (["abc", "xyz"], ["xyz", "abc"]),
        (["*"], ["abc", "abd"]),
    ],
)
def test_several_are_chosen(client: FakeManager, given: list[str], expected: list[str]) -> None:
    assert choose_open(client, given) == expected


@pytest.mark.parametrize("given", ["xyz*", "xz", "q*"])
def test_a_beginning_means_open_ones_only(client: FakeManager, given: str) -> None:
    with pytest.raises(NotFound):
        choose_open(client, [given])


def test_a_long_list_is_cut(manager: FakeManager) -> None:
    manager.add(*(state(f"a{number}") for number in range(12)))
    with pytest.raises(InvalidInput, match="a8, a9 and 2 more"):
        choose(manager, "a")
