"""A trial that reports its parameter, waits for its gate, and reports twice the parameter as final result.

`$GATES/<sequence id>` opens one gate, `$GATES/all` every one.
"""

import json
import os
import sys
import time

sys.path.insert(0, os.environ["PYTHONPATH"].rsplit(":", 1)[-1])
import nni

gates = os.environ["GATES"]
own, common = (os.path.join(gates, name) for name in (os.environ["NNI_TRIAL_SEQ_ID"], "all"))


def note(**entry):
    line = json.dumps({"attempt": os.path.basename(os.environ["NNI_SYS_DIR"]), "pid": os.getpid(), **entry}) + "\n"
    with open(os.environ["TRIAL_NOTES"], "a") as file:
        file.write(line)


x = nni.get_next_parameter()["x"]
note(event="started", x=x)
note(event="intermediate", value=x)
nni.report_intermediate_result(x)
while not (os.path.exists(own) or os.path.exists(common)):
    time.sleep(0.02)
note(event="final", value=x * 2)
nni.report_final_result(x * 2)
