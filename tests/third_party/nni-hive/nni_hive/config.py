"""The config section of `hive`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from nni_manager.platform_kit.section_model import PlatformSection, marked, secret


class HiveConfig(PlatformSection):
    """``trainingService: {platform: hive, …}``."""

    platform: Literal["hive"] = Field(default="hive", description="Always `hive`.")
    url: str = marked("Address of the Hive.", format="url")
    account: str = Field(min_length=1, description="Account on the Hive; experiments of one account share its pace.")
    token: str = secret("Token of the account.")
