"""The config section of `dlts` (DLWorkspace). Values arrive canonical, see `platform_kit.section_model`.

NNI has this section only in its first format; the field names here are those of the other platforms.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from nni_manager.domain.text import refuse_login_in
from nni_manager.platform_kit.section_model import (
    DEFAULT_IMAGE,
    TRIAL,
    FirstFormat,
    OptionalMode,
    PlatformSection,
    marked,
    mode_field,
    secret,
)


class DltsConfig(PlatformSection):
    """The fields of ``trainingService: {platform: dlts, …}``."""

    platform: Literal["dlts"] = Field(default="dlts", description="Always `dlts`.")
    dashboard: str = Field(description="Address of the dashboard; it ends in `/`.")
    cluster: str = Field(default=".default", min_length=1, description="Name of the cluster.")
    team: str | None = Field(
        default=None,
        min_length=1,
        description="Name of the team. Default: `DLWS_VC_NAME` of the manager's environment.",
    )
    email: str | None = Field(
        default=None,
        min_length=1,
        description="Email of the account. Default: `DLWS_USER_EMAIL` of the manager's environment.",
    )
    password: str | None = secret(
        "Token of the account. Default: `DLTS_JOB_TOKEN` of the manager's environment.", default=None
    )
    docker_image: str = Field(default=DEFAULT_IMAGE, min_length=1, description="Image of the container.")
    local_storage_mount_point: str | None = marked(
        "Folder on the manager's machine that jobs mount at another path. Default: the experiment's folder, at the "
        "same path in jobs.",
        default=None,
        format="manager-directory",
    )
    container_storage_mount_point: str | None = marked("Path of that folder in jobs.", default=None, format="absolute")
    storage_mode: OptionalMode = mode_field()

    @field_validator("dashboard")
    @classmethod
    def _is_address(cls, address: str) -> str:
        if not address.startswith(("http://", "https://")) or not address.endswith("/"):
            raise ValueError("must be an address such as https://dlts.example.com/ that ends in /")
        refuse_login_in(address)
        return address


#: The section in NNI's first format.
FIRST_FORMAT = FirstFormat(
    fields={
        **TRIAL,
        "trial.image": "dockerImage",
        "dltsConfig.dashboard": "dashboard",
        "dltsConfig.cluster": "cluster",
        "dltsConfig.team": "team",
        "dltsConfig.email": "email",
        "dltsConfig.password": "password",
    },
    required=("trial.command", "trial.codeDir", "trial.gpuNum", "trial.image", "dltsConfig"),
    only_here=("platform",),
)
