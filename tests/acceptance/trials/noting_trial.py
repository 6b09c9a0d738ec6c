"""A trial that notes its parameters and results outside the manager's folders."""

import json
import os
import sys
import time

sys.path.insert(0, os.environ["PYTHONPATH"].rsplit(":", 1)[-1])
import nni

steps, pause_s = int(sys.argv[1]), float(sys.argv[2])
# maximum addition to `pause_s`, in seconds; each trial has its own pause
spread_s = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
notes_file = os.environ["TRIAL_NOTES"]
attempt = os.path.basename(os.environ["NNI_SYS_DIR"])


def note(**entry):
    line = json.dumps({"attempt": attempt, "pid": os.getpid(), **entry}) + "\n"
    with open(notes_file, "a") as file:
        file.write(line)


x = nni.get_next_parameter()["x"]
note(event="started", trial=os.environ["NNI_TRIAL_JOB_ID"], x=x)
for step in range(steps):
    time.sleep(pause_s + spread_s * x)
    note(event="intermediate", value=x + step)
    nni.report_intermediate_result(x + step)
note(event="final", value=x * 2)
nni.report_final_result(x * 2)
