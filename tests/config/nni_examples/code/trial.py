"""Minimal trial used with the example configurations: reports a few results and ends."""

import time

import nni

params = nni.get_next_parameter()
score = 1.0 - abs(float(params.get("lr", 0.01)) - 0.01)
for step in range(5):
    nni.report_intermediate_result(score * (step + 1) / 5)
    time.sleep(0.05)
nni.report_final_result(score)
