"""Advisors as users write them for NNI 3, and for NNI 2."""

#: Proposes 1, 2, 3…, two at most that run; passes on what it was told, `calls`; stops what reports less than 0.
RACING = """
import json

import nni
from nni.runtime.msg_dispatcher_base import MsgDispatcherBase
from nni.runtime.tuner_command_channel import CommandType
from nni.utils import MetricType


class Racing(MsgDispatcherBase):
    def __init__(self, most=2):
        super().__init__()
        self.most, self.credit, self.made, self.running, self.calls = most, 0, 0, 0, []

    def handle_initialize(self, data):
        self.calls.append(["space", sorted(data)])
        self.send(CommandType.Initialized, "")

    def handle_update_search_space(self, data):
        self.calls.append(["another space", sorted(data)])

    def handle_request_trial_jobs(self, data):
        self.credit += data
        self.fill()
        if self.credit:
            self.send(CommandType.NoMoreTrialJobs, nni.dump({"parameter_id": "-1_0", "parameters": ""}))

    def fill(self):
        while self.credit and self.running < self.most:
            self.credit, self.made, self.running = self.credit - 1, self.made + 1, self.running + 1
            job = {"parameter_id": "p_%d" % self.made, "parameters": {"x": self.made, "calls": self.calls[:]}}
            self.send(CommandType.NewTrialJob, nni.dump({**job, "parameter_source": "algorithm"}))
            self.calls.clear()

    def handle_report_metric_data(self, data):
        value = nni.load(data["value"])
        final = data["type"] == MetricType.FINAL
        number = "final" if final else data["sequence"]
        self.calls.append([data["trial_job_id"], data["parameter_id"], number, value])
        if not final and value < 0:
            self.send(CommandType.KillTrialJob, nni.dump(data["trial_job_id"]))

    def handle_trial_end(self, data):
        self.running -= 1
        self.calls.append([data["trial_job_id"], data["event"], nni.load(data["hyper_params"])["parameter_id"]])
        self.fill()

    def handle_import_data(self, data):
        self.calls.append(["import", data])
"""

#: As for NNI 2: the function `send`, and no import of data.
OLD = """
import json

from nni.runtime.protocol import CommandType, send
from nni.runtime.msg_dispatcher_base import MsgDispatcherBase


class Old(MsgDispatcherBase):
    def __init__(self, fails=False):
        super(Old, self).__init__()
        self.fails, self.made = fails, 0

    def handle_initialize(self, data):
        self.handle_update_search_space(data)
        send(CommandType.Initialized, "")

    def handle_update_search_space(self, data):
        self.space = data

    def handle_request_trial_jobs(self, data):
        if self.fails:
            send(CommandType.Error, "no idea")
        for _ in range(data):
            self.made += 1
            send(CommandType.NewTrialJob, json.dumps({"parameter_id": self.made, "parameters": {"x": self.made}}))

    def handle_report_metric_data(self, data):
        pass

    def handle_trial_end(self, data):
        pass
"""
