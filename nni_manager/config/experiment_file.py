"""An experiment's config, from text, file or store → `ExperimentSpec`. Every refusal names file, line and field.

This is the only place that knows that there is more than one dialect.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from nni_manager.config import dialect_v2
from nni_manager.config.document import Document, fold
from nni_manager.config.scalars import kind
from nni_manager.config.search_space import check_search_space
from nni_manager.config.source import Source
from nni_manager.config.text_file import read_text
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.experiment import ExperimentSpec, Json

#: What may change while an experiment exists.
CHANGEABLE = (
    "experimentName", "searchSpace", "trialConcurrency", "maxTrialNumber", "maxExperimentDuration",
    "maxTrialDuration",
)  # fmt: skip


def load(
    text: str, *, directory: Path, file: str = "", working_directory: Path = Path("~/nni-experiments"),
    data_directory: Path | None = None, elsewhere: bool = False,
) -> ExperimentSpec:  # fmt: skip
    """The experiment that YAML or JSON text describes.

    Relative paths start at `directory`; messages call the text `file`; `working_directory` is the default of
    `experimentWorkingDirectory`; algorithms registered in `data_directory` have a name. `elsewhere`: the text is on its
    way to another machine's daemon, which alone knows what is registered there. Raises ConfigInvalid with all problems.
    """
    from nni_manager.config import yaml_reader  # the YAML library, only where there is text to read

    document = yaml_reader.read(text, file)
    source = Source(
        directory=os.path.realpath(directory), working_directory=str(working_directory), file=file, document=document,
        data_directory=str(data_directory or ""), elsewhere=elsewhere,
    )  # fmt: skip
    return _read(document, source)


def load_file(path: Path, data_directory: Path | None = None) -> ExperimentSpec:
    """As `load`; relative paths start at the file's folder."""
    absolute = os.path.abspath(os.path.expanduser(path))  # a link to a config lies where the link lies
    return load(read_text(absolute), directory=Path(absolute).parent, file=str(path), data_directory=data_directory)


def from_canonical(canonical: Json) -> ExperimentSpec:
    """The experiment whose `canonical` form this is, without looking at the file system. Raises ConfigInvalid."""
    return dialect_v2.read(canonical, Source(directory="/", stored=True))


def change(spec: ExperimentSpec, fields: Mapping[str, object]) -> ExperimentSpec:
    """The experiment with some of `CHANGEABLE` changed; None takes a limit or the name away.

    Raises InvalidInput for a field that cannot change, ConfigInvalid for a value that a config may not have.
    """
    for name in fields:
        if name not in CHANGEABLE:
            raise InvalidInput(f"{name} cannot be changed once an experiment exists; {', '.join(CHANGEABLE)} can")
    changed = _with(spec, fields)
    dialect_v2.check_counts(fields)
    if "searchSpace" in fields:
        check_search_space(changed.search_space, changed.tuner.name)
    return changed


def in_debug(spec: ExperimentSpec) -> ExperimentSpec:
    """The experiment with `debug` switched on, as if its file said so."""
    services = [{**platform.settings, "debug": True} for platform in spec.platforms]
    level = spec.log_level if spec.log_level == "trace" else "debug"
    section = services if isinstance(spec.canonical["trainingService"], list) else services[0]
    return _with(spec, {"debug": True, "logLevel": level, "trainingService": section})


def _with(spec: ExperimentSpec, fields: Mapping[str, object]) -> ExperimentSpec:
    """The warnings of its file stay."""
    return replace(from_canonical({**spec.canonical, **fields}), warnings=spec.warnings)


def _read(document: Document, source: Source) -> ExperimentSpec:
    values = document.root.value
    if not isinstance(values, dict):
        source.refuse((), _no_mapping(values))
        source.check()
    if any(fold(key) == "trainingserviceplatform" for key in values):
        source.refuse(("trainingServicePlatform",), _OLD_DIALECT)
        source.check()
    return dialect_v2.read(values, source)


_OLD_DIALECT = (
    "configs in NNI's first format are not in this version yet; "
    "write trainingService: {platform: …} and the field names of NNI 2.0 and later"
)


def _no_mapping(values: object) -> str:
    found = "is empty" if values is None else f"holds {kind(values)}"
    return f"a config is a mapping of fields such as trialCommand to values, and this one {found}"
