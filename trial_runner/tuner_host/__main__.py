"""``python3 .../tuner_host/__main__.py``: the host of users' tuners and assessors, in whatever Python starts it.

That Python finds our package only by this file's location: packages installed next to it may be for another Python.
"""

import os
import sys

if sys.version_info < (3, 7):
    # without annotations or formatted text up to here, so that old ones can say it
    sys.exit("Python {}.{} cannot run tuners and assessors; use 3.7 or newer".format(*sys.version_info[:2]))

if __name__ == "__main__":
    import importlib.util

    here = os.path.dirname(os.path.realpath(__file__))
    if sys.path and os.path.realpath(sys.path[0]) == here:
        del sys.path[0]
    place = os.path.dirname(here)
    found = importlib.util.spec_from_file_location(
        "trial_runner", os.path.join(place, "__init__.py"), submodule_search_locations=[place]
    )
    assert found is not None and found.loader is not None
    package = importlib.util.module_from_spec(found)
    sys.modules["trial_runner"] = package
    found.loader.exec_module(package)

    from trial_runner.tuner_host.process import serve
    from trial_runner.tuner_host.user_verbs import UserVerbs

    serve(UserVerbs())
