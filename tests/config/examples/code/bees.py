"""Stands for a user's own tuner; loading a config never imports it."""


class BeeTuner:
    pass
