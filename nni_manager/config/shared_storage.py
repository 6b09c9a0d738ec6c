"""The config section `sharedStorage` → its canonical form."""

from __future__ import annotations

from nni_manager.config.document import Path
from nni_manager.config.model_section import read_choice, validate
from nni_manager.config.scalars import kind
from nni_manager.config.source import Source

NAME = "sharedStorage"


def read_shared_storage(raw: object, code_directory: object, source: Source) -> dict[str, object] | None:
    """None when it is refused, which is then noted in `source`."""
    from nni_manager.platform_kit.shared_storage import KINDS

    path: Path = (NAME,)
    if not isinstance(raw, dict):
        source.refuse(path, f"must be a mapping such as {{storageType: NFS, …}}, not {kind(raw)}")
        return None
    chosen = read_choice(raw, list(KINDS), path, NAME, source)
    section = chosen and validate(*chosen, path, source)
    if section is not None and not source.stored:
        _check_outside(str(section["localMountPoint"]), str(code_directory), source)
    return section


def _check_outside(mount_point: str, code_directory: str, source: Source) -> None:
    if f"{source.path(mount_point)}/".startswith(f"{code_directory.rstrip('/')}/"):
        source.refuse((NAME, "localMountPoint"), f"must not lie in trialCodeDirectory ({code_directory})")
