"""A trial that reports its parameter at every step; the last step is its final result."""

import os
import sys
import time

sys.path.insert(0, os.environ["PYTHONPATH"].rsplit(":", 1)[-1])
import nni

steps, pause_s = int(sys.argv[1]), float(sys.argv[2])
x = nni.get_next_parameter()["x"]
for _ in range(steps):
    nni.report_intermediate_result(x)
    time.sleep(pause_s)
nni.report_final_result(x)
