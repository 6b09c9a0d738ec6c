"""Minimal custom tuner for v2-custom-tuner.yml: always proposes the first value of each choice or the lower bound."""

from nni.tuner import Tuner


class MyTuner(Tuner):
    def __init__(self, seed=0):
        self.seed = seed
        self.space = {}

    def update_search_space(self, search_space):
        self.space = search_space

    def generate_parameters(self, parameter_id, **kwargs):
        return {name: spec["_value"][0] for name, spec in self.space.items()}

    def receive_trial_result(self, parameter_id, parameters, value, **kwargs):
        return None
