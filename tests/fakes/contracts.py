"""The vendors' own schemas, in `shared/reference/contracts` next to the repository, because we may not store them here.

Without them the fakes use only their own rules.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any


@functools.cache
def folder() -> Path | None:
    """Their folder, if it exists."""
    for parent in Path(__file__).resolve().parents:
        found = parent / "shared" / "reference" / "contracts"
        if found.is_dir():
            return found
    return None


@functools.cache
def definition(file: str, name: str) -> Any:
    """A validator of one definition of a schema; None: the schema is missing."""
    root = folder()
    if root is None or not (root / file).is_file():
        return None
    import jsonschema_rs

    schema = json.loads((root / file).read_text())
    if name not in schema["definitions"]:
        return None
    return jsonschema_rs.Draft7Validator({**schema, "$ref": f"#/definitions/{name}"})


@functools.cache
def whole(file: str) -> Any:
    """A validator of a whole schema; None: the schema is missing."""
    root = folder()
    if root is None or not (root / file).is_file():
        return None
    import jsonschema_rs

    return jsonschema_rs.Draft7Validator(json.loads((root / file).read_text()))


def fault(file: str, name: str, body: object) -> str:
    """Violations in `body`; empty: none, or the schema is missing. Without `name`: of the whole schema."""
    validator = definition(file, name) if name else whole(file)
    if validator is None:
        return ""
    error = next(iter(validator.iter_errors(body)), None)
    return "" if error is None else f"{'/'.join(map(str, error.instance_path)) or 'body'}: {error.message}"
