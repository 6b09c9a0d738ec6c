"""The query string: read, refused with the name of what is wrong, and printed again."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest

from nni_manager.analysis.query import Condition, Query
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.metrics import OptimizeMode
from nni_manager.domain.trial_status import TrialStatus

pytestmark = pytest.mark.unit


def parse(text: str) -> Query:
    return Query.parse(parse_qsl(text, keep_blank_values=True))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "status=RUNNING%2CFAILED",
        "q=some+text",
        "p.rate=0.001..1",
        "p.rate=..1",
        "p.kind=a%2Cb",
        "p.kind=%22a%2Cb%22%2Cc",
        "m.acc=0.5..",
        "sort=p.layer.size",
        "sort=result",
        "key=acc&direction=maximize&top=5&clip=1.5&selected=3%2C17",
        "x=clock&page=2&limit=10",
        "axes=a%2Cb",
        "number=17",
        "from=1&to=2.5",
    ],
)
def test_printed_query_is_read_as_the_same(text: str) -> None:
    assert parse(text).string() == text
    assert parse(parse(text).string()) == parse(text)


def test_fields() -> None:
    query = parse('status=RUNNING&p.a=1e-3..&p.b="x,y",null&direction=maximize&clip=1')
    assert query.status == (TrialStatus.RUNNING,) and query.direction is OptimizeMode.MAXIMIZE and query.clip == 1.5
    assert query.parameters == (("a", Condition(low=0.001)), ("b", Condition(choices=('"x,y"', "null"))))


def test_empty_fields_of_forms_choose_everything() -> None:
    assert parse("status=&q=&p.rate=&sort=&page=") == Query()


def test_a_column_tells_whether_the_trials_are_sorted_by_it() -> None:
    query = parse("sort=result&page=4")
    assert query.direction_of("result") == "ascending" and query.direction_of("id") == "none"


@pytest.mark.parametrize(
    "text",
    [
        "status=LATE",
        "sort=nothing",
        "sort=p.",
        "p.rate=..",
        "m.acc=high",
        'p.kind="open',
        'p.kind="a"b',
        "direction=up",
        "top=0",
        "top=1e3",
        "clip=7",
        "clip=nan",
        "selected=1,x",
        "x=time",
        "page=0",
        "limit=100000",
        "number=-1",
        "from=soon",
        "page=1&page=2",
        "p.a=1..2&p.a=2..3",
        "colour=red",
    ],
)
def test_refusals_begin_with_the_name(text: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{text.partition('=')[0]}: "):
        parse(text)


def test_lenient_reading_leaves_unknown_names_out() -> None:
    assert Query.parse([("tab", "charts"), ("page", "2")], lenient=True) == Query(page=2)
