"""A tuner that notes the results that it gets, in one file per process."""

import json
import os
import random

from nni.tuner import Tuner


class NoteTuner(Tuner):
    def __init__(self, folder):
        self.path = os.path.join(folder, f"host-{os.getpid()}.jsonl")
        self.random = random.Random(os.getpid())

    def update_search_space(self, search_space):
        self.space = search_space

    def generate_parameters(self, parameter_id, **kwargs):
        return {"x": self.random.random()}

    def receive_trial_result(self, parameter_id, parameters, value, **kwargs):
        self._note(x=parameters["x"], value=value)

    def import_data(self, data):
        for entry in data:
            self._note(x=entry["parameter"]["x"], value=entry["value"])

    def _note(self, **entry):
        with open(self.path, "a") as file:
            file.write(json.dumps(entry) + "\n")
