"""A trial that reports its parameter as final result; every fourth fails.

From the sixth on, trials wait until `$GATES/all` exists.
"""

import json
import os
import sys
import time

number = int(os.environ["NNI_TRIAL_SEQ_ID"])
while number > 4 and not os.path.exists(os.path.join(os.environ["GATES"], "all")):
    time.sleep(0.02)
if number % 4 == 3:
    sys.exit(3)
with open(os.path.join(os.environ["NNI_SYS_DIR"], "parameter.cfg")) as file:
    x = json.load(file)["parameters"]["x"]
with open(os.environ["NNI_OUTBOX"], "a") as outbox:
    outbox.write(json.dumps({"type": "final", "value": x}) + "\n")
