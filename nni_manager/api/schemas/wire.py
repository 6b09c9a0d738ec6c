"""The base of all models: camelCase outside, snake_case inside."""

from __future__ import annotations

import json

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticSerializationError


class Wire(BaseModel):
    """Unknown fields are refused, so that a misspelt one is noticed."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, serialize_by_alias=True,
        extra="forbid", frozen=True,
    )  # fmt: skip

    def json_text(self) -> str:
        """All of it. What pydantic cannot spell, halves of characters, becomes escapes; what is no number is null."""
        try:
            return self.model_dump_json(by_alias=True)
        except PydanticSerializationError:
            plain = json.dumps(self.model_dump(by_alias=True))
            return json.dumps(json.loads(plain, parse_constant=lambda _: None))
