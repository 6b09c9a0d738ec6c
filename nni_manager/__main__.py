"""``python -m nni_manager`` is ``nni-manager``."""

from nni_manager.cli.main import nni_manager

nni_manager(prog_name="nni-manager")
