"""Reads the body of `POST /experiments`: an experiment file, or JSON with the file and its caller's context."""

from __future__ import annotations

import asyncio
import json
import os.path
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from email.message import Message
from pathlib import Path
from typing import Any

from fastapi import Request
from pydantic import ValidationError

from nni_manager.api import code, experiment_description
from nni_manager.api.context import ApiContext
from nni_manager.api.schemas.experiments import NewExperiment
from nni_manager.config import edited_file, experiment_file, user_classes
from nni_manager.config.experiment_file import ParsedConfig
from nni_manager.config.reading import document
from nni_manager.config.reading.document import Patience
from nni_manager.config.reading.source import LARGE_CHARACTERS
from nni_manager.domain import ids
from nni_manager.domain.errors import InvalidInput, NotFound
from nni_manager.domain.experiment import ExperimentSpec
from nni_manager.domain.text import require_text
from nni_manager.scheduler.experiments.submission import Submission

#: Seconds within which a text must be parsed.
PATIENCE_S = 30.0
YAML_TYPES = ("application/yaml", "text/yaml", "application/x-yaml")
JSON_TYPE = "application/json"


def _new_experiment_schema() -> dict[str, Any]:
    """The JSON schema of a new experiment, without the definitions that other routes add."""
    schema = NewExperiment.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs")
    return schema


#: Schemas by name, for generated clients.
SCHEMAS: dict[str, Any] = {
    "NewExperiment": _new_experiment_schema(),
    "ExperimentFile": {
        "type": "object",
        "description": "The experiment file, in NNI's config format.",
    },
}
#: For the API's description: FastAPI does not read the body, because it may be YAML.
REQUEST_BODY: dict[str, Any] = {
    "required": True,
    "description": "The experiment file; its relative paths start at the data directory. Or JSON with the file's text"
    " in `config` and the context of the caller.",
    "content": {
        JSON_TYPE: {"schema": {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in SCHEMAS]}},
        **{kind: {"schema": {"type": "string", "description": "The experiment file."}} for kind in YAML_TYPES},
    },
}


async def read(request: Request, context: ApiContext) -> Submission:
    """The submission in a request. Raises InvalidInput, ConfigInvalid with all problems."""
    text = _text(await request.body())
    return await _submission(_unwrap(text, _content_type(request)), context)


async def of_pasted(text: str, context: ApiContext) -> Submission:
    """The submission of an experiment file that was pasted into a page.

    Relative paths are refused, because their folder is unknown. Raises InvalidInput, ConfigInvalid with all problems.
    """
    return await _submission(NewExperiment(config=text), context, absolute_paths=True)


async def _submission(new: NewExperiment, context: ApiContext, *, absolute_paths: bool = False) -> Submission:
    directory = await _directory(new, context)
    environment = context.environment if new.environment is None else new.environment
    reading = await _load(new, directory, environment, context, absolute_paths=absolute_paths)
    spec = reading.spec
    _require_code(new, spec, context)
    python = user_classes.python(new.interpreter or spec.tuner_python, new.environment, file=new.file)
    kept = spec.kept_of(environment)
    class_direction = await user_classes.check(spec, python, kept, file=new.file)
    spec = experiment_file.in_debug(spec) if new.debug else spec
    sent = code.CodeFolders(context.data_directory).holding(directory if new.code else Path(spec.trial_code_directory))
    submission = Submission(
        spec=spec,
        environment=kept,
        interpreter=python,
        class_direction=class_direction,
        secrets=reading.secrets,
        endpoint=experiment_description.endpoint_wish(new.endpoint),
        sent_code=sent,
        provenance=None if new.provenance is None else new.provenance.model_dump(by_alias=True),
        file_record=edited_file.record(reading.spec.canonical, new.directory, new.file),
    )
    return replace(submission, id=new.id, is_id_chosen=True) if new.id else submission


async def _load(
    new: NewExperiment,
    directory: Path,
    environment: Mapping[str, str],
    context: ApiContext,
    *,
    absolute_paths: bool,
) -> ParsedConfig:
    """Parse the config in a thread, because large files and files that they name take long.

    A cancelled call ends the thread. Raises ConfigInvalid with all problems.
    """
    async with context.large_texts if len(new.config) > LARGE_CHARACTERS else nullcontext():
        patience = Patience(PATIENCE_S)
        document.patience.set(patience)
        try:
            return await asyncio.to_thread(
                experiment_file.read,
                new.config,
                directory=directory,
                file=new.file,
                working_directory=context.data_directory,
                data_directory=context.data_directory,
                environment=environment,
                absolute_paths=absolute_paths,
                secrets=new.secrets,
            )
        finally:
            patience.end()  # else the thread continues


async def _directory(new: NewExperiment, context: ApiContext) -> Path:
    """The base folder of relative paths in the config. Raises InvalidInput."""
    if not new.code:
        return Path(new.directory) if new.directory else context.data_directory
    try:
        return await code.directory(context.data_directory, new.code)
    except NotFound as error:
        raise InvalidInput(f"code: {error}") from None


def _require_code(new: NewExperiment, spec: ExperimentSpec, context: ApiContext) -> None:
    """Refuse the data directory, which has all experiments, as default code directory. Raises InvalidInput."""
    is_named = new.code or new.directory
    if not is_named and os.path.realpath(spec.trial_code_directory) == os.path.realpath(context.data_directory):
        raise InvalidInput(
            "trialCodeDirectory: is the daemon's data directory, because the body does not set `directory` for relative"
            " paths; set it, or give an absolute path"
        )


def _content_type(request: Request) -> str:
    message = Message()
    message["content-type"] = request.headers.get("content-type", "")
    return message.get_content_type()


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"the body is not UTF-8 text: byte {error.start} cannot be read; save the file as UTF-8"
        ) from None


def _unwrap(text: str, content_type: str) -> NewExperiment:
    if content_type in YAML_TYPES:
        return NewExperiment(config=text)
    if content_type != JSON_TYPE:
        kinds = ", ".join((*YAML_TYPES, JSON_TYPE))
        raise InvalidInput(f"the content type of an experiment file must be one of {kinds}, not {content_type}")
    fields = _json(text)
    if not isinstance(fields, dict) or "config" not in fields:
        return NewExperiment(config=text)
    try:
        return _checked(NewExperiment.model_validate(fields, strict=True, from_attributes=False))
    except ValidationError as error:
        raise InvalidInput("; ".join(map(_sentence, error.errors(include_input=False, include_url=False)))) from None


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except RecursionError:
        raise InvalidInput("the body is nested too deeply for an experiment") from None
    except ValueError as error:
        raise InvalidInput(f"the body is not JSON: {error}") from None


def _checked(new: NewExperiment) -> NewExperiment:
    _require_place("directory", new.directory)
    if "/" in new.interpreter or "\0" in new.interpreter:  # else it is a name on the caller's PATH
        _require_place("interpreter", new.interpreter)
    if new.code and (new.directory or not code.is_sha256(new.code)):
        raise InvalidInput("code: must be the SHA-256 of code that was sent, and cannot be combined with directory")
    if new.id in ids.NOT_FOR_EXPERIMENTS:
        raise InvalidInput(f"id: {new.id} is reserved; choose another one")
    checked_environment(new.environment or {})
    for name in ("directory", "file", "interpreter", "secrets"):
        require_text(name, getattr(new, name))
    if new.provenance is not None:
        require_text("provenance", new.provenance.model_dump())
    return new


def checked_environment(environment: Mapping[str, str]) -> Mapping[str, str]:
    """The environment of a request. Raises InvalidInput for invalid variables."""
    for name, value in environment.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise InvalidInput(
                "environment: a name is empty or contains = or a null byte, or a value contains a null byte"
            )
    require_text("environment", environment)
    return environment


def _require_place(name: str, path: str) -> None:
    if path and (not os.path.isabs(path) or "\0" in path):
        raise InvalidInput(f"{name}: must be an absolute path, because the daemon does not know your current folder")


def _sentence(fault: Any) -> str:
    """The message of a validation error, with names of variables and without values, which may be secrets."""
    return f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
