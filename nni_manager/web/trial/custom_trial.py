"""The form of a trial with custom parameters: typed fields from the search space, and their checks.

A value of the wrong type is refused with the name of its field. A value outside the search space is allowed after a
confirmation, as in NNI.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nni_manager.domain.errors import BadDimension, InvalidInput
from nni_manager.domain.space import search_space
from nni_manager.domain.space.dimension import Choice, Integer, Real
from nni_manager.domain.space.search_space import Key, PlacedDimension, SearchSpace
from nni_manager.web import formats

#: Name of the field with all parameters as JSON, used if the search space does not define them.
JSON_FIELD = "json"
#: Name of the check box that allows values outside the search space.
OUTSIDE_FIELD = "outside"
#: Option of a choice that keeps the original's value, which is not one of the options.
_KEPT = "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    value: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """A field of the form. `name` is a number, because parameter names may contain any character."""

    name: str
    label: str
    #: ``number``, ``choice``, ``branch`` or ``json``.
    kind: str
    #: Current value.
    text: str
    #: Description of the values in the search space.
    hint: str = ""
    options: tuple[Option, ...] = ()
    #: Field and option of the nested choice that contains it; empty: top level.
    parent: str = ""
    branch: str = ""
    depth: int = 0
    #: Why the value is refused, or what needs a confirmation.
    error: str = ""
    warning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialForm:
    fields: tuple[FormField, ...]
    #: The submitted parameters; None: they cannot run as they are.
    parameters: object = None
    #: Parameters of the original that are not in the search space; they are kept.
    kept: Mapping[str, object] = field(default_factory=dict)
    #: Whether a value outside the search space needs a confirmation.
    must_confirm: bool = False

    @property
    def has_errors(self) -> bool:
        return any(one.error for one in self.fields)

    @property
    def may_run(self) -> bool:
        return not self.has_errors and not self.must_confirm


def prefilled(space: object, parameters: object) -> TrialForm:
    """The form filled with a trial's parameters; None: empty fields. `space`: search space in NNI's JSON."""
    parsed = _parsed(space, parameters)
    if parsed is None:
        text = "{}" if parameters is None else json.dumps(parameters, ensure_ascii=False, indent=2)
        return TrialForm(fields=(_json_field(text),))
    values = parsed.values(parameters)
    return TrialForm(
        fields=tuple(_field(parsed, number, values) for number in range(len(parsed.places))),
        kept=_kept(parsed, parameters),
    )


def sent(space: object, parameters: object, form: Mapping[str, str]) -> TrialForm:
    """The submitted form, checked. `parameters`: those of the original trial."""
    parsed = _parsed(space, parameters)
    if parsed is None:
        return _sent_json(form)
    filled = prefilled(space, parameters)
    fields = tuple(replace(one, text=form.get(one.name, "")) for one in filled.fields)
    values: dict[Key, object] = {}
    checked = tuple(
        _checked(one, place, fields, values, parsed.values(parameters).get(place.key))
        for one, place in zip(fields, parsed.places, strict=True)
    )
    found = TrialForm(fields=checked, kept=filled.kept)
    if found.has_errors:
        return found
    whole = {**filled.kept, **parsed.assemble(lambda place: values[place.key])}
    is_outside = any(one.warning for one in checked)
    return replace(found, parameters=whole, must_confirm=is_outside and not form.get(OUTSIDE_FIELD))


def _parsed(space: object, parameters: object) -> SearchSpace | None:
    """None: search space or parameters are not in NNI's format, as may be the case with a custom tuner."""
    if parameters is not None and not isinstance(parameters, Mapping):
        return None
    try:
        found = search_space.parse(space)
    except (BadDimension, InvalidInput):
        return None
    return found if found.places else None


def _json_field(text: str, error: str = "") -> FormField:
    hint = "a JSON object of names and values"
    return FormField(name=JSON_FIELD, label="Parameters", kind="json", text=text, hint=hint, error=error)


def _sent_json(form: Mapping[str, str]) -> TrialForm:
    text = form.get(JSON_FIELD, "")
    try:
        return TrialForm(fields=(_json_field(text),), parameters=json.loads(text, parse_constant=_no_constant))
    except (ValueError, RecursionError) as error:
        return TrialForm(fields=(_json_field(text, f"is not JSON: {error}"),))


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a number in JSON")


def _kept(space: SearchSpace, parameters: object) -> dict[str, object]:
    named = {place.name for place in space.places if not place.parent}
    return (
        {name: value for name, value in parameters.items() if name not in named}
        if isinstance(parameters, Mapping)
        else {}
    )


def _field(space: SearchSpace, number: int, values: Mapping[Key, object]) -> FormField:
    place = space.places[number]
    above = next((n for n, one in enumerate(space.places) if one.branches and one.key == place.key[:-2]), None)
    has_value = place.key in values
    options = _options(place, values[place.key]) if has_value else _options(place, None, is_missing=True)
    return FormField(
        name=f"f{number}",
        label=place.name,
        kind="branch" if place.branches else "choice" if options else "number",
        text=_text(place, values[place.key]) if has_value else options[0].value if options else "",
        hint=_hint(place),
        options=options,
        parent="" if above is None else f"f{above}",
        branch="" if above is None else str(place.key[-2]),
        depth=len(place.key) // 2,
    )


def _options(place: PlacedDimension, value: object, *, is_missing: bool = False) -> tuple[Option, ...]:
    if not isinstance(place.dimension, Choice):
        return ()
    shown = place.branches or tuple(map(_as_text, place.dimension.options))
    found = tuple(Option(value=str(index), text=formats.short(text)) for index, text in enumerate(shown))
    if is_missing or place.branches or place.dimension.contains(value):
        return found
    return (*found, Option(value=_KEPT, text=f"{formats.short(_as_text(value))} (unchanged)"))


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _text(place: PlacedDimension, value: object) -> str:
    if place.branches:
        return str(value)
    if isinstance(place.dimension, Choice):
        return str(place.dimension.index(value)) if place.dimension.contains(value) else _KEPT
    return _as_text(value)


def _hint(place: PlacedDimension) -> str:
    dimension = place.dimension
    if isinstance(dimension, Integer):
        return f"a whole number from {dimension.low} to {dimension.high - 1}"
    if isinstance(dimension, Choice):
        return ""
    step = f", a multiple of {dimension.step:g}" if dimension.step is not None else ""
    scale = ", logarithmic" if dimension.log else ""
    if dimension.normal:
        of = " of its logarithm" if dimension.log else ""
        return f"a number; mean{of} {dimension.first:g}, deviation {dimension.second:g}{step}"
    return f"a number from {dimension.first:g} to {dimension.second:g}{scale}{step}"


def _checked(
    one: FormField, place: PlacedDimension, fields: Sequence[FormField], values: dict[Key, object], original: object
) -> FormField:
    """The field with its error or warning. Adds its value to `values`."""
    if place.parent and values.get(place.key[:-2]) != place.key[-2]:
        return one  # in a branch that is not selected
    try:
        value = _READ[type(place.dimension)](one, place, original)
    except ValueError as error:
        return replace(one, error=str(error))
    values[place.key] = value
    if place.dimension.contains(value):
        return one
    return replace(one, warning=f"is outside the search space: {one.hint or 'not one of the options'}")


def _chosen(one: FormField, place: PlacedDimension, original: object) -> object:
    assert isinstance(place.dimension, Choice)
    if one.text == _KEPT and any(option.value == _KEPT for option in one.options):
        return original
    if not any(option.value == one.text for option in one.options):
        raise ValueError("must be one of the options")
    return int(one.text) if place.branches else place.dimension.options[int(one.text)]


def _integer(one: FormField, place: PlacedDimension, original: object) -> object:
    try:
        return int(one.text.strip())
    except ValueError:
        raise ValueError(f"must be a whole number, not {formats.short(one.text.strip())!r}") from None


def _real(one: FormField, place: PlacedDimension, original: object) -> object:
    try:
        value = float(one.text.strip())
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"must be a number such as 0.1 or 1e-3, not {formats.short(one.text.strip())!r}")
    return value


_READ: dict[type, Callable[[FormField, PlacedDimension, object], object]] = {
    Choice: _chosen,
    Integer: _integer,
    Real: _real,
}
