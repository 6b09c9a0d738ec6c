"""The formats of single values.

Each function takes a raw value and returns its canonical form, or raises ValueError with the end of a sentence that
begins with the field's name. No text repeats a value that may be a secret. `plain_value` is called first; it reads
unquoted scalars.
"""

from __future__ import annotations

import math
import pwd
import re
from collections.abc import Iterable, Mapping

from nni_manager.domain.ids import EXPERIMENT_ID

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_BYTES = {"b": 1} | {
    prefix + unit: 2 ** (10 * power) for power, prefix in enumerate("kmgt", start=1) for unit in ("b", "", "i")
}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]+)\s*", re.IGNORECASE)
_KUBERNETES = re.compile(r"([0-9]+(?:\.[0-9]*)?)(?:([numkMGTPE]|[KMGTPE]i)|([eE][-+]?[0-9]{1,2}))?")
#: Suffix of a Kubernetes quantity → its factor.
_FACTORS = {
    **{letter: 1000.0**power for power, letter in enumerate("num", start=-3)},
    **{letter: 1000.0**power for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", start=1)},
}
#: Bytes of memory below which no container starts.
_LEAST_MEMORY = 4 * 2**20
_FLAGS = {"yes": "true", "on": "true", "no": "false", "off": "false"}
_INDICES = re.compile(r"\s*[0-9]{1,9}\s*(,\s*[0-9]{1,9}\s*)*")


def text(raw: object) -> str:
    if not isinstance(raw, str):
        advice = "; put it in quotes" if isinstance(raw, bool | int | float) else ""
        raise ValueError(f"must be text, not {kind(raw)}{advice}")
    if not raw.strip():
        raise ValueError("must not be empty")
    return raw


def title(raw: object) -> str | None:
    """Text, or None where it is empty."""
    return None if raw == "" else text(raw)


def python_version(raw: object) -> str:
    """Major and minor version of a Python 3. YAML reads 3.10 without quotes as the number 3.1."""
    if not isinstance(raw, str) or not re.fullmatch(r"3\.[0-9]{1,2}", raw.strip()):
        raise ValueError('must be major and minor version of a Python 3 in quotes, such as "3.11"')
    return raw.strip()


def flag(raw: object) -> bool:
    if not isinstance(raw, bool):
        raise ValueError(f"must be true or false, not {kind(raw)}{_meant(raw)}")
    return raw


def _meant(raw: object) -> str:
    """The advice to write true or false instead of a truth value of YAML 1.1, such as ``yes``; else empty."""
    word = _FLAGS.get(raw.lower()) if isinstance(raw, str) else None
    return f"; write {word}" if word else ""


def mapping(raw: object) -> dict[str, object]:
    if not isinstance(raw, dict):
        raise ValueError(f"must be a mapping of names to values, not {kind(raw)}")
    return raw


def whole_number(raw: object, minimum: int) -> int:
    """An int from `minimum` on; a boolean, text or 1.0 is refused."""
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise ValueError(f"must be a whole number, not {kind(raw)}")
    if raw < minimum:
        raise ValueError(f"must be at least {minimum}, not {raw}")
    return raw


def duration(raw: object) -> object:
    """A duration above zero, kept as the user wrote it; see `whole_seconds`."""
    if seconds(raw) <= 0:
        raise ValueError("must be longer than 0")
    return raw


def pause(raw: object) -> object:
    """A duration that may be zero, kept as the user wrote it; see `seconds`."""
    seconds(raw)
    return raw


def whole_seconds(raw: object) -> int:
    """A duration in whole seconds, rounded up."""
    return math.ceil(round(seconds(raw), 6))  # 1.1 * 60 is a little more than 66


def seconds(raw: object) -> float:
    """A duration in seconds, from ``<number><s|m|h|d>`` or a number of seconds."""
    form = "a duration such as 30s, 10m, 1.5h or 2d, or a number of seconds"
    value = _quantity(raw, _SECONDS, form) if isinstance(raw, str) else _number(raw)
    if not 0 <= value < 1e12:
        raise ValueError(f"must be {form}, not below 0 and not above 10^12 s")
    return value


_SHARE = re.compile(r"([0-9]{1,3})%")


def count_or_share(raw: object) -> int | str:
    """A whole number from 0 on, or a percentage below 100 such as ``20%``, kept as it is."""
    if not isinstance(raw, str):
        return whole_number(raw, 0)
    found = _SHARE.fullmatch(raw)
    if found is None or int(found[1]) >= 100:
        raise ValueError(f"must be a whole number, or a percentage below 100 such as 20%, not '{raw}'")
    return raw


_KEPT = re.compile(r"best ([1-9][0-9]{0,5})")


def kept_checkpoints(raw: object) -> str:
    """``all``, ``none`` or ``best N``, kept as it is; see `number_kept`."""
    if not isinstance(raw, str) or (raw not in ("all", "none") and not _KEPT.fullmatch(raw)):
        shown = f"'{raw}'" if isinstance(raw, str) else kind(raw)
        raise ValueError(f"must be 'all', 'none', or 'best' and a number such as 'best 3', not {shown}")
    return raw


def number_kept(kept: str) -> int | None:
    """The number of successful trials that keep their checkpoints, from a `kept_checkpoints` value; None: all."""
    found = _KEPT.fullmatch(kept)
    return int(found[1]) if found is not None else {"all": None, "none": 0}[kept]


def part_of(limit: int | str, total: int | None) -> int | None:
    """The number that a `count_or_share` stands for, rounded down; None: a share without a `total`."""
    if isinstance(limit, int) or total is None:
        return limit if isinstance(limit, int) else None
    return total * int(limit.removesuffix("%")) // 100


def numeral(raw: object) -> int:
    """A whole number from 0 on, or text of one."""
    if isinstance(raw, str) and re.fullmatch(r"\s*[0-9]{1,9}\s*", raw):
        return int(raw)
    return whole_number(raw, 0)


def quantity(raw: object) -> str:
    """A quantity of Kubernetes, such as ``8Gi`` or ``500m``; kept as it is."""
    value = str(raw) if type(raw) is int else text(raw)
    if not _KUBERNETES.fullmatch(value) or not re.search("[1-9]", value):
        raise ValueError(f"must be a quantity of Kubernetes above 0, such as 8Gi, 512Mi or 1.5, not '{value}'")
    return value


def memory_quantity(raw: object) -> str:
    """A quantity of Kubernetes for memory, of at least 4 MiB: a number without a unit is bytes. Kept as it is."""
    value = quantity(raw)
    match = _KUBERNETES.fullmatch(value)
    if match is not None and float(match[1] + (match[3] or "")) * _FACTORS.get(match[2], 1.0) < _LEAST_MEMORY:
        if match[2] or match[3]:
            raise ValueError(f"must be at least 4Mi, not {value}; use a larger unit, such as 512Mi")
        raise ValueError(f"must be at least 4Mi, not {value} bytes; add a unit, such as 512Mi or 8Gi")
    return value


def memory_mb(raw: object) -> int:
    """An amount of memory in whole MB of 1024 × 1024 bytes, rounded up.

    From ``<number><tb|gb|mb|kb|b>``, also ``8g`` and ``8Gi``, or a number of MB.
    """
    form = "an amount of memory such as 8GB or 512mb, or a number of MB"
    amount = _quantity(raw, _BYTES, form) / 2**20 if isinstance(raw, str) else whole_number(raw, 1)
    if not 0 < amount < 1e12:
        raise ValueError(f"must be {form}, above 0")
    return math.ceil(amount)


def gpu_indices(raw: object) -> list[int]:
    """The indices of GPUs, from a list of ints, one int, or text such as ``"0,1,3"``.

    At least one, and each once; an index below 0 is refused.
    """
    indices = _index_list(raw)
    if not indices:
        raise ValueError("must name at least one GPU; leave the field out to allow all")
    if min(indices) < 0:
        raise ValueError("must not hold a negative GPU index")
    twice = {index for index in indices if indices.count(index) > 1}
    if twice:
        raise ValueError(f"names GPU {min(twice)} twice; name each once")
    return indices


_VARIABLE = re.compile(r"[^=\0\s]+")


def variable_names(raw: object) -> list[str]:
    """Names of environment variables, each once; the list may be empty."""
    if not isinstance(raw, list) or not all(isinstance(name, str) and _VARIABLE.fullmatch(name) for name in raw):
        raise ValueError("must be a list of names of environment variables, such as [PATH, HOME]")
    return list(dict.fromkeys(raw))


def experiment_ids(raw: object) -> list[str]:
    """Ids of experiments, each once."""
    if not isinstance(raw, list) or not all(isinstance(one, str) and EXPERIMENT_ID.fullmatch(one) for one in raw):
        raise ValueError(
            "must be a list of experiment ids, such as [a1b2c3d4]; put an id that has only digits in quotes"
        )
    return list(dict.fromkeys(raw))


def kind(raw: object) -> str:
    """The kind of a value, as text for messages, without the value."""
    names = {bool: "true or false", int: "a whole number", float: "a fraction", str: "text", list: "a list"}
    return names.get(type(raw), "a mapping" if isinstance(raw, dict) else "nothing")


def _number(raw: object) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise ValueError(f"must be a number, not {kind(raw)}")
    if not abs(raw) <= 1e300:  # this form refuses NaN, too
        raise ValueError("must be a finite number")
    return raw


def _quantity(raw: str, units: dict[str, int], form: str) -> float:
    match = _QUANTITY.fullmatch(raw)
    if match is None or match[2].lower() not in units:
        raise ValueError(f"must be {form}, not '{raw}'")
    return float(match[1]) * units[match[2].lower()]


def _index_list(raw: object) -> list[int]:
    if isinstance(raw, str) and _INDICES.fullmatch(raw):
        return [int(part) for part in raw.split(",")]
    items = raw if isinstance(raw, list) else [raw]
    indices = [item for item in items if isinstance(item, int) and not isinstance(item, bool)]
    if len(indices) < len(items):
        raise ValueError('must be GPU indices such as [0, 1], 0 or "0,1"')
    return indices


_WORDS: Mapping[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **{form: True for word in ("true", "yes", "on") for form in (word, word.capitalize(), word.upper())},
    **{form: False for word in ("false", "no", "off") for form in (word, word.capitalize(), word.upper())},
}
_INT = re.compile(r"[-+]?[0-9]{1,300}")
_BASED_INT = re.compile(r"0(?:x[0-9a-fA-F]{1,300}|o[0-7]{1,300})")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL_FLOAT = re.compile(r"([-+]?)\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def plain_value(text: str) -> bool | int | float | str | None:
    """The value of an unquoted scalar, or its text. Numbers are those of YAML 1.2, truth values those of YAML 1.1, in
    which NNI's files are written: ``yes``, ``no``, ``on`` and ``off``, too.

    Environment variables are read in this way, too, without the YAML library.
    """
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _BASED_INT.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    special = _SPECIAL_FLOAT.fullmatch(text)
    return float(text.replace(".", "", 1)) if special else text


def local_users(raw: object) -> bool | frozenset[int]:
    """True: all users; else the ids of the named users, from a list or comma-separated text. Raises ValueError."""
    if isinstance(raw, bool):
        return raw
    names = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(names, list):
        raise ValueError(f"must be true, false or names of users, not {kind(raw)}")
    return frozenset(_uid(text(name).strip()) for name in names)


def _uid(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        raise ValueError(f"names {name!r}, which is not a user of this machine; correct the name") from None


#: Placeholders in printed examples, to be replaced: ``${your token}``, ``{your_server}``, ``<your-name>``.
#: Commands, arguments of algorithms, search spaces, pod templates and job configurations are not searched, because
#: braces and angle brackets have a meaning there.
_PLACEHOLDER_WORDS = r"[A-Za-z_][\w .,-]*"
_ANY = re.compile(rf"\$?\{{\s*{_PLACEHOLDER_WORDS}\}}|<{_PLACEHOLDER_WORDS}>")
_YOUR = re.compile(r"\$?\{\s*your[^{}]*\}|<\s*your[^<>]*>", re.IGNORECASE)


def refuse_placeholders(raw: object) -> None:
    """Refuse every placeholder in a path, a name or an address. Raises ValueError that names them."""
    _refuse_all(_ANY.finditer(_searched(raw)))


def refuse_your_placeholders(raw: object) -> None:
    """Refuse placeholders with ``your`` in text where braces may have a meaning. Raises ValueError."""
    _refuse_all(_YOUR.finditer(_searched(raw)))


def refuse_one_placeholder(raw: object) -> None:
    """Refuse text that consists of one placeholder, in free text such as a password.

    ``${VARIABLE}`` refers to a variable and is not refused. Raises ValueError.
    """
    text = _searched(raw).strip()
    if (
        _YOUR.fullmatch(text)
        or (_ANY.fullmatch(text) and not text.startswith("$"))
        or re.fullmatch(r"\$\{.* .*\}", text)
    ):
        _refuse(text)


def _searched(raw: object) -> str:
    """The text of a value, or empty. `{your_server}` without quotes is a mapping of one key to null."""
    if isinstance(raw, dict) and len(raw) == 1 and None in raw.values():
        return f"{{{next(iter(raw))}}}"
    return raw if isinstance(raw, str) else ""


def _refuse_all(found: Iterable[re.Match[str]]) -> None:
    texts = dict.fromkeys(match[0] for match in found)
    if texts:
        _refuse(" and ".join(texts))


def _refuse(text: str) -> None:
    raise ValueError(f"contains the placeholder {text}; replace it by the real value")
