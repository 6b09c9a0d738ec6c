"""Everything an adapter may lean on.

`contract` is what it promises, `testing` puts that to the test, `registry` finds it, `payload` describes its jobs. For
jobs of this machine there is the keeper (`keeper_process`, `keeper_client`, `abandoned_jobs`); for jobs with a trial
runner its archive, its token, and `pull`, which reads what it leaves on shared storage; `archive` packs code.

May import `domain` and `trial_runner.protocol`; adapters are found at run time, never imported by name here.
"""
