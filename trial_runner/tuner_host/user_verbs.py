"""Users' classes: found, validated and created, in the Python that was chosen for them.

==============  =========================================================  =======================================
verb            arguments                                                  result
==============  =========================================================  =======================================
find            classes: {label: {class_name, code_directory,              {refusals: {label: sentence},
                class_args: {name: value}, null: not checked}}             directions: {label: maximize, minimize}}
validate        validator, code_directory, class_args                      {refusal: a sentence, or empty}
==============  =========================================================  =======================================

Both import the classes, which stay imported. A sentence is ours, or the last line of a traceback with the line of the
user's file that it names.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from typing import Any, Callable

from trial_runner.tuner_host.threaded_tuner import ThreadedTuner
from trial_runner.tuner_host.user_advisor import UserAdvisor, base_of, make_instance
from trial_runner.tuner_host.user_tuner import UserAssessor, UserTuner
from trial_runner.tuner_host.verbs import HostedTuner, Message, Verbs


class CannotUse(Exception):
    """The config's description of a user's class is not usable; the text is a sentence that names the field."""


class UserVerbs(Verbs):
    """The verbs of `verbs` for users' classes, and two that validate them."""

    def __init__(self) -> None:
        super().__init__(_make_tuner, lambda spec: UserAssessor(_load(spec)(**_arguments(spec))), (CannotUse,))
        self._verbs.update(find=_find, validate=_validate)


def load(class_name: str, code_directory: str) -> Callable[..., Any]:
    """A user's class. Its folder is prepended to the search path, so modules next to it can be imported.

    Raises CannotUse if the folder, module or class does not exist; exceptions of the module itself pass through.
    """
    module_name, _, name = class_name.rpartition(".")
    if not module_name or not name:
        raise CannotUse(f"className {class_name!r} has no module; write module.Class.")
    if code_directory and not os.path.isdir(code_directory):
        raise CannotUse(f"codeDirectory: the folder {code_directory} does not exist.")
    if code_directory and code_directory not in sys.path:
        sys.path.insert(0, code_directory)
    loaded: Any = getattr(importlib.import_module(module_name), name, None)
    if not callable(loaded):
        raise CannotUse(f"module {module_name!r} has no class {name!r}.")
    return loaded  # type: ignore[no-any-return]  # callable, as looked at above


def _load(spec: Message) -> Callable[..., Any]:
    return load(spec["class_name"], spec["code_directory"])


def _make_tuner(spec: Message) -> HostedTuner:
    loaded = _load(spec)
    base = base_of(loaded)
    if base is None:
        hosted = ThreadedTuner if spec.get("multi_thread") else UserTuner
        return hosted(loaded(**_arguments(spec)))
    instance, channel = make_instance(lambda: loaded(**_arguments(spec)), base)
    return UserAdvisor(instance, channel, base)


def _arguments(spec: Message) -> Message:
    return dict(spec.get("class_args") or {})


def _find(request: Message) -> Message:
    complaints = {label: _complaint(_judge, spec) for label, spec in request["classes"].items()}
    usable = {label: spec for label, spec in request["classes"].items() if not complaints[label]}
    directions = {label: _default_direction(_load(spec)) for label, spec in usable.items()}
    return {
        "refusals": {label: sentence for label, sentence in complaints.items() if sentence},
        "directions": {label: mode for label, mode in directions.items() if mode},
    }


def _default_direction(loaded: Callable[..., Any]) -> str:
    """The default of the argument `optimize_mode`, ``maximize`` or ``minimize``; empty: there is none.

    An ``__init__`` with arbitrary keywords is assumed to pass it to the next class.
    """
    classes = inspect.getmro(loaded) if inspect.isclass(loaded) else ()
    for made in (loaded, *(vars(one)["__init__"] for one in classes if "__init__" in vars(one))):
        try:
            parameters = inspect.signature(made).parameters
        except (TypeError, ValueError):
            return ""
        if "optimize_mode" in parameters:
            default = parameters["optimize_mode"].default
            mode = getattr(default, "value", default)  # of an enumeration, as NNI's
            return mode if mode in ("maximize", "minimize") else ""
        if all(one.kind is not inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
            return ""
    return ""


def _judge(spec: Message) -> None:
    """Raises CannotUse for arguments that the class would not accept; a class without a signature accepts all."""
    loaded = _load(spec)
    if spec.get("class_args") is None:
        return
    try:
        signature = inspect.signature(loaded)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(**spec["class_args"])
    except TypeError as error:
        raise CannotUse(f"classArgs do not fit its __init__: {error}; it takes {signature}.") from None


def _validate(request: Message) -> Message:
    """The refusal of class arguments by an NNI `ClassArgsValidator`."""

    def ask(arguments: Message) -> object:
        return load(request["validator"], request["code_directory"])().validate_class_args(**arguments)

    return {"refusal": _complaint(ask, request["class_args"])}


def _complaint(function: Callable[[Message], object], argument: Message) -> str:
    try:
        function(argument)
    except CannotUse as error:
        return str(error)
    except SyntaxError as error:  # its message has the file and the line
        return f"{type(error).__name__}: {error}"
    except (Exception, SystemExit) as error:
        lines = "".join(traceback.format_exception_only(type(error), error)).strip().splitlines()
        return lines[-1].strip() + _origin(error, str(argument.get("code_directory") or ""))
    return ""


def _origin(error: BaseException, code_directory: str) -> str:
    """The last line of the traceback that is in the user's folder; empty where none is."""
    folder = os.path.join(os.path.realpath(code_directory), "") if code_directory else ""
    frames = traceback.extract_tb(error.__traceback__)
    users = [one for one in frames if folder and os.path.realpath(one.filename).startswith(folder)]
    return " ({}, line {})".format(users[-1].filename, users[-1].lineno) if users else ""
