"""`optimize`: a function as a trial."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import trial_runner
from nni_manager.client import caller
from nni_manager.domain.errors import InvalidInput
from nni_manager.programs import sent_function
from nni_manager.programs.experiment import Experiment
from nni_manager.programs.sent_function import SentFunction
from nni_manager.programs.spelling import Spelling

_NNI_CALL = Path(trial_runner.__file__).with_name("stand_in") / "nni_call.py"
#: Set in trials of `optimize`, as `nni_call.TRIAL_VARIABLE`.
_TRIAL_VARIABLE = "NNI_CALL_TRIAL"
#: A function of the parameters that returns its result, or yields results.
Function = Callable[[Any], Any]
#: Name of a platform without required fields, a section `trainingService`, or several.
Platform = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
Direction = Literal["minimize", "maximize"]


def optimize(
    function: Function,
    space: Mapping[str, Any],
    *,
    trials: int,
    concurrency: int = 1,
    direction: Direction = "minimize",
    tuner: Mapping[str, Any] | None = None,
    platform: Platform = "local",
    code_directory: str | os.PathLike[str] | None = None,
    progress: bool = True,
    data_dir: str | os.PathLike[str] | None = None,
    manager: str | None = None,
    **fields: Any,
) -> Experiment:
    """Search `space` with `function`, each call in a separate trial; return the experiment after `trials` trials.

    ::

        space = {"x": nni_manager.space.uniform(-9, 9)}
        found = nni_manager.optimize(lambda parameters: (parameters["x"] - 2) ** 2, space, trials=50)
        print(found.best)

    The function returns a number, a dict with the number in ``default``, or yields intermediate results. Each trial
    imports the function if a module defines it, and the module's folder is sent. Another function (of a notebook, of
    the program itself, a closure) is sent by cloudpickle (``pip install nni-manager[programs]``) and requires the same
    minor version of Python in trials: machines with another one are refused before the start, containers fail in their
    first trial. On this machine, such a function has the program's modules and working directory.

    `code_directory`: a folder that is sent with the function, which runs there; on this machine it is not copied.
    `platform`: ``local``, a section `trainingService` of an experiment file, or a list of these. `tuner`: its section;
    default: Auto, or TPE with `objectives`. `direction` applies unless the section, or `objectives`, sets another.
    `progress`: show the address of the page and a bar. `fields`: other fields of an experiment file.

    Raises InvalidInput, before the start, for a function that cannot be sent or read there, and for values that
    experiment files cannot hold; for other errors see `Experiment.run`.
    """
    _require_no_trial()
    if direction not in get_args(Direction):
        raise InvalidInput(f"direction: must be 'minimize' or 'maximize', not {direction!r}")
    given = tuner or {"name": "TPE" if "objectives" in fields else "Auto"}
    is_elsewhere = caller.choose(None if data_dir is None else os.fspath(data_dir), manager).is_remote
    with tempfile.TemporaryDirectory(prefix="nni-manager-") as folder:
        sections = _sections(platform)
        is_sent_away = not all(_is_here(section, is_elsewhere=is_elsewhere) for section in sections)
        sent = sent_function.prepare(function, Path(folder), code_directory, is_sent_away=is_sent_away)
        told = {
            "experiment_name": getattr(function, "__name__", "function"),
            "search_space": space,
            "trial_code_directory": ".",
            "trial_concurrency": concurrency,
            "max_trial_number": trials,
            "tuner": given if "objectives" in fields else _directed(given, direction),
            **_services(sections, sent, is_elsewhere=is_elsewhere),
        }
        with _in_arguments(platform):
            experiment = Experiment({**told, **fields}, directory=sent.folder, data_dir=data_dir, manager=manager)
            experiment.start(send_code=True, progress=progress)
    experiment.wait(progress=progress)
    experiment.stop()
    return experiment


#: Field of an experiment → argument of `optimize`.
_ARGUMENTS = {"max_trial_number": "trials", "trial_concurrency": "concurrency", "training_service": "platform"}


@contextmanager
def _in_arguments(platform: Platform) -> Iterator[None]:
    """Raise errors with the names of arguments."""
    names = {**_ARGUMENTS, "training_service.platform": "platform"} if isinstance(platform, str) else _ARGUMENTS
    try:
        yield
    except InvalidInput as error:
        raise Spelling(names=names).refusal(error) from None


def _directed(tuner: Mapping[str, Any], direction: str) -> Mapping[str, Any]:
    """The section of a built-in tuner with a direction; other tuners may not accept one."""
    from nni_manager.tuners.registry import CATALOGUE

    known = CATALOGUE.look_up(str(tuner.get("name", "")))
    if known is None or not known.is_built_in:
        return tuner
    key = "classArgs" if "classArgs" in tuner else "class_args"
    given = tuner.get(key) or {}
    return {**tuner, key: {**given, "optimize_mode": given.get("optimize_mode") or direction}}


def _require_no_trial() -> None:
    """Raise InvalidInput in a trial of `optimize` and its processes, because the search would never end."""
    if os.environ.get(_TRIAL_VARIABLE):
        raise InvalidInput(
            "optimize was called inside a trial of optimize: put the call below `if __name__ == '__main__':`, because"
            " process pools import the program again"
        )


def _sections(platform: Platform) -> list[Mapping[str, Any]]:
    given = [{"platform": platform}] if isinstance(platform, str) else platform
    return [given] if isinstance(given, Mapping) else list(given)


def _services(sections: Sequence[Mapping[str, Any]], sent: SentFunction, *, is_elsewhere: bool) -> dict[str, Any]:
    """The sections of the training services, with the command that calls the function in trials."""
    commands = [_command(section, sent, is_elsewhere=is_elsewhere) for section in sections]
    needed = [_needed(section, sent, is_elsewhere=is_elsewhere) for section in sections]
    first = next(iter(commands), "")
    own = [{} if command == first else {"trial_command": command} for command in commands]
    told = [{**needs, **other, **section} for needs, other, section in zip(needed, own, sections, strict=True)]
    return {"trial_command": first, "training_service": told[0] if len(told) == 1 else told}


def _command(section: Mapping[str, Any], sent: SentFunction, *, is_elsewhere: bool) -> str:
    """The command of trials. On this machine, it runs this Python, which need not search for the program."""
    is_here = _is_here(section, is_elsewhere=is_elsewhere)
    program = f"{shlex.quote(sys.executable)} {shlex.quote(str(_NNI_CALL))}" if is_here else "python3 -m nni_call"
    return " ".join([program, shlex.quote(sent.what), *([sent.program] if is_here and sent.program else [])])


def _needed(section: Mapping[str, Any], sent: SentFunction, *, is_elsewhere: bool) -> dict[str, str]:
    """The section's requirement on the Python of trials; empty if it is this Python, or any version works."""
    if not sent.python_version or _is_here(section, is_elsewhere=is_elsewhere):
        return {}
    return {"trial_python_version": sent.python_version}


def _is_here(section: Mapping[str, Any], *, is_elsewhere: bool) -> bool:
    """Whether trials run on this machine. `is_elsewhere`: the manager, and so ``local``, may be on another one."""
    return not is_elsewhere and section.get("platform") == "local"
