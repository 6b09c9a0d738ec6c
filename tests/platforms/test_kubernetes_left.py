"""What experiments left in a namespace, found by its labels: listed, and removed where a person said so."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.testing import Recorder
from nni_manager.platform_kit.testing.observing import accepted, running
from tests.platforms.kubeflow.test_kubeflow_contract import TestPyTorchJob as PyTorch
from tests.platforms.kubeflow.test_kubeflow_contract import TestTFJob as TF
from tests.platforms.kubeflow.test_kubeflow_contract import operated
from tests.platforms.test_kubernetes_others import named

pytestmark = [pytest.mark.contract]
TF_JOBS, PYTORCH_JOBS = "tfjobs.kubeflow.org", "pytorchjobs.kubeflow.org"


async def test_leftovers_of_unknown_experiments_are_found_and_removed(tmp_path: Path) -> None:
    async with TF().make_world(tmp_path) as world:
        world.recorder.connections = Connections("0a1b2c3d")
        async with world.make(channel="exec") as platform:
            handle = await accepted(world, platform, "a")
        id_, job = world.recorder.experiment_id, world.object_name(handle)
        # another manager, at work with an experiment that is not known here either
        lost = Recorder(connections=Connections("99999999"), experiment_id="lostlost")
        looking = world.make_of(lost)
        found = await looking.find_left((), None)
        assert {one.what.partition(" ")[0] for one in found} == {"TFJob", "Secret", "ConfigMap"}
        assert f"TFJob {job}" in [one.what for one in found]
        assert {(one.experiment_id, one.manager, one.stays) for one in found} == {(id_, "0a1b2c3d", "")}
        assert all(one.created_ms is not None and one.created_ms > 1.5e12 for one in found)
        assert await looking.find_left([id_], None) == [], "of those at work nothing is said"
        assert await looking.find_left([id_], [id_]) == [] == await looking.find_left((), ["other"])
        assert named(world, TF_JOBS) == [job]
        assert await looking.find_left((), [id_]) == found
        assert [named(world, kind) for kind in (TF_JOBS, "secrets", "configmaps")] == [[], [], []]
        assert await looking.find_left((), None) == []


async def test_objects_of_another_kind_of_job_stay(tmp_path: Path) -> None:
    async with PyTorch().make_world(tmp_path) as world:
        async with world.make() as platform:
            await running(world, platform, "a")
        id_, here = (
            world.recorder.experiment_id,
            [named(world, kind) for kind in (PYTORCH_JOBS, "configmaps")],
        )
        world.operated = operated("tf-operator", "worker", "tfjobs")
        looking = world.make_of(Recorder(experiment_id="lostlost"))
        found = await looking.find_left((), None)
        assert found and all("pods of another kind of job" in one.stays for one in found)
        assert await looking.find_left((), [id_]) == []
        assert [named(world, kind) for kind in (PYTORCH_JOBS, "configmaps")] == here


async def test_an_object_of_an_earlier_version_says_no_manager(tmp_path: Path) -> None:
    async with TF().make_world(tmp_path) as world:
        labels = {"nni-manager/experiment": "oldoldol", "nni-manager/service": "kubeflow"}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "old", "labels": labels}}
        cluster = world.server.cluster
        cluster.verbs.create(cluster.kinds.by_key("configmaps"), "default", body)
        (found,) = await world.make_of(Recorder(experiment_id="lostlost")).find_left((), None)
        assert (found.experiment_id, found.manager, found.what) == ("oldoldol", "", "ConfigMap old")


async def test_unreadable_namespace_is_reported(tmp_path: Path) -> None:
    async with TF().make_world(tmp_path) as world:
        world.control.fault(times=-1, path="/secrets", status=403, reason="Forbidden", message="secrets is forbidden")
        with pytest.raises(PlatformUnavailable, match="secrets is forbidden"):
            await world.make().find_left((), None)
