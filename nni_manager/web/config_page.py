"""The settings, config and search space of an experiment, and the form that changes limits and search space."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nni_manager.analysis.query import Query
from nni_manager.config import experiment_file
from nni_manager.config.secrets import mask
from nni_manager.domain.errors import Conflict, InvalidInput, NniManagerError
from nni_manager.store.experiment import experiments
from nni_manager.web import formats
from nni_manager.web.experiment_pages import render_tab
from nni_manager.web.rendering import ask, context_of, experiment_id, form_of, to_experiment
from nni_manager.web.shared_pages import shared
from nni_manager.web.shown_experiments import config_of

_SPACE = "searchSpace"
#: Fields that the form changes, with a hint at valid values.
CHANGEABLE = {
    "maxTrialNumber": "a whole number; empty: no limit",
    "maxExperimentDuration": "such as 90m, 2h or 1d; empty: no limit",
    "trialConcurrency": "a whole number",
    _SPACE: "a JSON object; applies to trials that the tuner proposes from now on",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """A parameter of the search space, with the values observed in trials."""

    name: str
    type: str
    #: Range or choices.
    values: str
    #: Empty: no scale.
    scale: str
    observed: str
    present: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A field of the form; its values are texts."""

    name: str
    hint: str
    now: str
    new: str

    @property
    def is_long(self) -> bool:
        """Whether the text has several lines."""
        return self.name == _SPACE

    @property
    def differs(self) -> bool:
        """Whether the new value differs; the order of a search space does not count."""
        if self.now == self.new or not self.is_long:
            return self.now != self.new
        return _space(self.new) is None or bool(self.rows)

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """(name, current value, new value) of each change; of a search space, of each changed parameter."""
        if not self.is_long:
            return [(self.name, self.now or "no limit", self.new or "no limit")]
        now, new = _space(self.now) or {}, _space(self.new) or {}
        pairs = [(name, _written(now, name), _written(new, name)) for name in {**now, **new}]
        return [(f"{_SPACE}.{name}", before, after) for name, before, after in pairs if before != after]


@shared
async def _config(request: Request) -> Response:
    config, parameters = await _masked(request), (await ask(request, "columns", Query()))["parameters"]
    settings = {name: value for name, value in config.items() if name != _SPACE}
    record = await context_of(request).commands.read(experiment_id(request), experiments.provenance)
    return await render_tab(
        request,
        "config.html",
        tab="config",
        settings=list(lines(settings)),
        dimensions=list(map(dimension, parameters)),
        origin=record,
    )


async def _file(request: Request) -> Response:
    text = json.dumps(await _masked(request), indent=2, ensure_ascii=False)
    headers = {"Content-Disposition": f'attachment; filename="{experiment_id(request)}-config.json"'}
    body = text.encode(errors="backslashreplace")
    return Response(body, media_type="application/json", headers={**headers, "Cache-Control": "no-store"})


async def _form(request: Request) -> Response:
    config = await _masked(request)
    return await _render_form(request, [_change(name, config, None) for name in CHANGEABLE])


async def _sent(request: Request) -> Response:
    """Show the changes, or with ``sure=1`` apply them. Errors are shown next to the form."""
    config, form = await _masked(request), await form_of(request)
    changes = [_change(name, config, form[name][-1].strip() if name in form else None) for name in CHANGEABLE]
    try:
        fields = {one.name: _value(one) for one in changes if one.differs}
        _check(request, fields)
        if form.get("sure") != ["1"]:
            return await _render_form(request, changes, asks=bool(fields))
        await context_of(request).commands.change(experiment_id(request), fields)
    except NniManagerError as error:
        return await _render_form(request, changes, error=str(error), status=HTTPStatus.BAD_REQUEST)
    return to_experiment(request)


def _check(request: Request, fields: Mapping[str, object]) -> None:
    """Raises Conflict for a closed experiment, InvalidInput or ConfigInvalid for an invalid value."""
    experiment = context_of(request).commands.at_work(experiment_id(request))
    if experiment is None:
        raise Conflict("the experiment is stopped; resume it before you change its limits")
    experiment_file.change(experiment.spec, fields)


async def _render_form(
    request: Request, changes: list[Change], *, asks: bool = False, error: str = "", status: int = 200
) -> Response:
    return await render_tab(request, "edit.html", tab="config", status=status, changes=changes, asks=asks, error=error)


def _change(name: str, config: Mapping[str, Any], new: str | None) -> Change:
    now = config.get(name)
    text = "" if now is None else str(now)
    if name == _SPACE:
        text = _indented(now)
        new = None if new is None else _tidied(new)
    return Change(name=name, hint=CHANGEABLE[name], now=text, new=text if new is None else new)


def _space(text: str) -> dict[str, Any] | None:
    """The search space in a text; None: not a JSON object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _written(space: Mapping[str, Any], name: str) -> str:
    return json.dumps(space[name], ensure_ascii=False) if name in space else "absent"


def _indented(space: object) -> str:
    return json.dumps(space, indent=2, ensure_ascii=False)


def _tidied(text: str) -> str:
    """The text of a search space as this page formats it; an invalid text is unchanged."""
    space = _space(text)
    return text if space is None else _indented(space)


def _value(change: Change) -> object:
    if change.is_long:
        return _space_of(change.new)
    if not change.new:
        return None
    if change.name == "maxExperimentDuration":
        return int(change.new) if change.new.isascii() and change.new.isdecimal() else change.new
    if not (change.new.isascii() and change.new.isdecimal() and len(change.new) < 16):
        raise InvalidInput(f"{change.name}: must be {CHANGEABLE[change.name]}, not {change.new[:40]!r}")
    return int(change.new)


def _space_of(text: str) -> dict[str, Any]:
    """Raises InvalidInput, with the line, if the text is not a JSON object."""
    try:
        found = json.loads(text)
    except RecursionError:
        raise InvalidInput(f"{_SPACE}: is nested too deeply") from None
    except ValueError as error:
        raise InvalidInput(f"{_SPACE}: is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidInput(f"{_SPACE}: must be a JSON object with parameter names as keys")
    return found


async def _masked(request: Request) -> dict[str, Any]:
    return mask(await config_of(context_of(request), experiment_id(request)))


def dimension(one: Mapping[str, Any]) -> Dimension:
    """A row of the table. `one`: a parameter in the answer to ``columns``."""
    choices, low, high = one["choices"], one["low"], one["high"]
    values = ", ".join(map(formats.short, choices)) if choices else ""
    values += f" and {one['others']} others" if one["others"] else ""
    if low is not None or high is not None:
        values = f"{formats.cell(low)} … {formats.cell(high)}"
    observed = [formats.cell(one["observed"][end]) for end in ("min", "max")]
    seen = " … ".join(dict.fromkeys(observed)) if all(observed) and not choices else ""  # choices are not a range
    return Dimension(
        name=one["name"],
        type=one["type"] or "not in the search space",
        values=values,
        scale=("log" if one["log"] else "linear") if low is not None else "",
        observed=seen,
        present=one["present"],
    )


def lines(value: object, prefix: str = "") -> Iterator[tuple[str, str]]:
    """(path, value) of every field at any depth: ``tuner.name``, ``trainingService[0].platform``."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from lines(inner, f"{prefix}.{name}" if prefix else str(name))
    elif isinstance(value, list) and any(isinstance(one, Mapping | list) for one in value):
        for number, inner in enumerate(value):
            yield from lines(inner, f"{prefix}[{number}]")
    elif value is not None:
        yield prefix, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_HERE = "/experiments/{id}"
ROUTES = [
    Route(f"{_HERE}/config", _config),
    Route(f"{_HERE}/config.json", _file),
    Route(f"{_HERE}/edit", _form),
    Route(f"{_HERE}/edit", _sent, methods=["POST"]),
]
