"""What PAI-DLC repeats of a request is shown without the access key's secret, however it spells it."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from nni_manager.platforms.dlc.account import DlcClient
from nni_manager.platforms.dlc.config import DlcConfig

pytestmark = pytest.mark.unit

SECRET = "s3cret/of+the bees"


class Refused(Exception):
    code, statusCode = "InvalidParameter", 400


@pytest.mark.parametrize("said", [SECRET, quote(SECRET, safe=""), "x" * 297 + SECRET])
def test_a_refusal_shows_no_secret(said: str) -> None:
    config = DlcConfig.model_validate(
        {
            "image": "i",
            "podCount": 1,
            "ecsSpec": "ecs.c6.large",
            "region": "cn-hangzhou",
            "endpoint": "http://127.0.0.1:1",
            "nasDataSourceId": "d",
            "accessKeyId": "id",
            "accessKeySecret": SECRET,
        }
    )
    client = DlcClient(config, SECRET)
    error = Refused(f"{said} is wrong")
    shown = str(client._translated(error, is_about_a_job=False))
    assert "s3c" not in shown
