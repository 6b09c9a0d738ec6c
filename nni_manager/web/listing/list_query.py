"""The query string of the list: filter, order and page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.web.table.page_query import QueryString

#: Columns that order the list.
SORTS = ("created", "name", "status", "best", "trials", "duration", "platform")
#: Values of `archived`: "" hides archived experiments, ``with`` adds them, ``only`` shows nothing else.
ARCHIVED = ("", "with", "only")
_NAMES = ("q", "status", "platform", "tag", "archived", "sort", "page")
_LONGEST = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery(QueryString):
    """The query string of the list."""

    #: Words that must all occur in name, id, notes or a tag; case is ignored.
    words: tuple[str, ...] = ()
    #: Empty: any.
    statuses: frozenset[ExperimentStatus] = frozenset()
    platform: str = ""
    tag: str = ""
    #: One of `ARCHIVED`.
    archived: str = ""
    #: One of `SORTS`.
    sort: str = "created"
    is_reversed: bool = True
    page: int = 1

    @staticmethod
    def parse(pairs: Iterable[tuple[str, str]]) -> ListQuery:
        """Raises InvalidInput with the invalid name. Repeated names, as check boxes send them, are joined."""
        given = _joined(pairs)
        sort = given.get("sort", "-created")
        archived = given.get("archived", "")
        if sort.removeprefix("-") not in SORTS:
            raise InvalidInput(f"sort: must be one of {', '.join(SORTS)}; a minus before it reverses the order")
        if archived not in ARCHIVED:
            raise InvalidInput("archived: must be `with` or `only`, or left out")
        return ListQuery(
            words=tuple(given.get("q", "").lower().split()),
            statuses=_statuses(given.get("status", "")),
            platform=given.get("platform", ""),
            tag=given.get("tag", ""),
            archived=archived,
            sort=sort.removeprefix("-"),
            is_reversed=sort.startswith("-"),
            page=_page(given.get("page", "1")),
            pairs=given,
        )

    def sorted_by(self, column: str) -> str:
        """The query string that sorts by a column or reverses its order; numbers and times start with the greatest."""
        first = column if column in ("name", "status", "platform") else f"-{column}"
        is_same = self.sort == column
        now = f"-{column}" if self.is_reversed else column
        other = column if self.is_reversed else f"-{column}"
        return self.string(sort=other if is_same and now == self.pairs.get("sort", "-created") else first, page=None)

    def direction_of(self, column: str) -> str:
        """The value of `aria-sort`."""
        return "none" if self.sort != column else "descending" if self.is_reversed else "ascending"

    @property
    def is_filtered(self) -> bool:
        return any(name in self.pairs for name in ("q", "status", "platform", "tag"))


def _joined(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for name, text in pairs:
        if name in _NAMES and text.strip():
            found.setdefault(name, []).append(text.strip()[:_LONGEST])
    return {name: ",".join(texts) for name, texts in found.items()}


def _statuses(text: str) -> frozenset[ExperimentStatus]:
    try:
        return frozenset(ExperimentStatus(one.strip()) for one in text.split(",") if one.strip())
    except ValueError:
        raise InvalidInput(f"status: must be a comma-separated list of {', '.join(ExperimentStatus)}") from None


def _page(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= len(text) <= 9 and int(text)):
        raise InvalidInput("page: must be a positive number")
    return int(text)
