"""The address of an experiment's page, as a caller sees it."""

from __future__ import annotations

import socket
from typing import Any, cast

import pytest

from nni_manager.client import endpoints
from nni_manager.client.caller import ChosenDaemon
from nni_manager.client.manager_client import ManagerClient

pytestmark = pytest.mark.unit

HERE, ELSEWHERE = ChosenDaemon(), ChosenDaemon(url="https://gpu-box/lab/")


class DaemonWithListeners:
    def __init__(self, *listeners: dict[str, str]) -> None:
        self._listeners = listeners

    def daemon(self) -> dict[str, Any]:
        return {"listeners": [{"kind": "control", "address": "/run/control"}, *self._listeners]}


def page(endpoint: dict[str, Any] | None, place: ChosenDaemon = HERE, service: str = "") -> str:
    daemon = DaemonWithListeners(*([{"kind": "service", "address": service}] if service else []))
    return endpoints.page({"id": "k3v9x0qa", "endpoint": endpoint}, cast(ManagerClient, daemon), place)


def own(url: str) -> dict[str, Any]:
    return {"url": url, "port": 8081, "urlPrefix": "pre"}


def test_own_page_comes_before_the_service() -> None:
    assert page(own("http://127.0.0.1:8081/pre/"), service="http://127.0.0.1:8080") == "http://127.0.0.1:8081/pre/"
    assert page(None, service="http://127.0.0.1:8080") == "http://127.0.0.1:8080/experiments/k3v9x0qa"
    assert page(None) == ""


def test_address_of_all_interfaces_has_the_name_of_this_machine() -> None:
    assert page(own("http://0.0.0.0:8081/")) == f"http://{socket.gethostname()}:8081/"


def test_page_of_a_manager_elsewhere_has_its_host() -> None:
    assert page(own("http://127.0.0.1:8081/pre/"), ELSEWHERE) == "http://gpu-box:8081/pre/"
    assert page(None, ELSEWHERE) == "https://gpu-box/lab/experiments/k3v9x0qa"


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "file:///etc/passwd", "http://h/\x1b[2J", "http://h/ b", "//h/"]
)
def test_address_that_is_unsafe_as_a_link_is_left_out(url: str) -> None:
    assert page(own(url)) == ""


def test_port_of_the_environment_is_the_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNI_MANAGER_PORT", "9000")
    assert endpoints.wish(HERE, None) == {"port": None, "urlPrefix": "", "firstPort": 9000}
    assert endpoints.wish(HERE, 8081, "pre") == {"port": 8081, "urlPrefix": "pre"}
    assert endpoints.wish(ELSEWHERE, None) == {"port": None, "urlPrefix": ""}
