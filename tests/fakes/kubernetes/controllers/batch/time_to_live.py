"""The controller that deletes finished Jobs after their `ttlSecondsAfterFinished`."""

from __future__ import annotations

from tests.fakes.kubernetes.controllers.batch import conditions
from tests.fakes.kubernetes.controllers.batch.back_off import age_s
from tests.fakes.kubernetes.controllers.loop import Controller
from tests.fakes.kubernetes.kinds import JOBS
from tests.fakes.kubernetes.store import Object


class TimeToLiveController(Controller):
    """Also deletes Jobs that another controller manages."""

    api_version, kind_name = "batch/v1", "Job"

    def look(self, job: Object) -> None:
        ttl_s, ended = job["spec"].get("ttlSecondsAfterFinished"), conditions.final(job.get("status") or {})
        if ttl_s is None or ended is None:
            return
        if (left_s := ttl_s - age_s(ended["lastTransitionTime"])) > 0:
            return self.later(job, left_s)
        meta = job["metadata"]
        options = {"propagationPolicy": "Foreground", "preconditions": {"uid": meta["uid"]}}
        self.verbs.delete(JOBS, meta["namespace"], meta["name"], options)
