"""The public names of `nni`: walked in the real package, and looked up in the stand-in.

``public_names.py walk`` prints ``{module: {name: signature}}``. ``public_names.py look`` reads that from its standard
input, and prints the names that the `nni` of this Python lacks or that have another signature. A signature is a list of
parameters, for a class a mapping of methods to such lists, and null for other values.
"""

import importlib
import inspect
import json
import os
import pkgutil
import sys
import types
import warnings

#: NNI's own programs, and what is refused as a whole; see the test.
LEFT_OUT = tuple(sys.argv[2:])


def takes(value):
    try:
        if inspect.isclass(value):
            methods = {"__init__": value.__init__, **dict(inspect.getmembers(value, inspect.isroutine))}
            public = {name: one for name, one in methods.items() if name == "__init__" or name[0] != "_"}
            return {name: parameters(one) for name, one in public.items()}
        return parameters(value) if callable(value) else None
    except (TypeError, ValueError):
        return None


def parameters(function):
    """Parameter names in order; ``*`` and ``**`` mean any others."""
    marks = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ["*", "**"]
    return [marks.get(one.kind, one.name) for one in found if one.name != "self"]


def walk():
    import nni

    found = {"nni": public(nni)}
    pending = [(nni.__path__, "nni.")]
    while pending:
        path, prefix = pending.pop()
        for one in pkgutil.iter_modules(path, prefix):
            if one.name in LEFT_OUT or one.name.endswith("__main__"):
                continue
            try:
                module = importlib.import_module(one.name)
            except ImportError:  # it needs torch, TensorFlow or an extra
                continue
            found[one.name] = public(module)
            if one.ispkg:
                pending.append((module.__path__, one.name + "."))
    return found


def public(module):
    """Names in ``__all__``, else names that it defines or imports from its own package."""
    package = module.__name__ + "."
    names = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if name[0] != "_" and (getattr(value, "__module__", None) or "").startswith(("nni.", package))
    ]
    kept = {name: getattr(module, name) for name in names}
    return {name: takes(value) for name, value in kept.items() if not isinstance(value, types.ModuleType)}


def look(asked):
    missing, different = [], []
    for module_name, names in asked.items():
        try:
            module = importlib.import_module(module_name)
        except ImportError:
            missing.append(module_name)
            continue
        for name, theirs in names.items():
            try:
                value = getattr(module, name)
            except (AttributeError, ImportError):
                missing.append(module_name + "." + name)
                continue
            different += differences(module_name + "." + name, theirs, takes(value))
    return {"missing": missing, "different": different}


def differences(name, theirs, ours):
    if isinstance(theirs, dict):
        own = ours or {}
        return [one for key in theirs for one in differences(name + "." + key, theirs[key], own.get(key))]
    if theirs is None:
        return []
    if ours is None:
        return [name]
    if {"*", "**"} & set(ours):
        return []
    wanted = [one for one in theirs if one[0] != "*"]
    return [] if ours[: len(wanted)] == wanted else [name]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    answer = os.dup(1)  # nni prints, too
    sys.stdout = sys.stderr
    result = walk() if sys.argv[1] == "walk" else look(json.load(sys.stdin))
    with os.fdopen(answer, "w") as file:
        json.dump(result, file)
