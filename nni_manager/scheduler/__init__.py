"""The heart: one loop per experiment, woken by events: snapshot → plan → record → act.

`plan` decides and is pure; `turn` runs snapshot, plan and record in one transaction, of what `intake` gathered;
`experiment_loop` acts afterwards, by `actions` and `forgetting`, until its `bell` rings again. Only this package
changes a trial's status. Imports: config and below.

Around that: `service` takes commands, `runner_desk` the posts of trial runners; `launcher` makes and opens experiments,
`supervisor` keeps those that are open, each an `open_experiment`. Of the tuner `tuner_feed` says what it is asked,
`verdicts` what its assessor is; `watched_tuner` waits for it, `tuner_hosts` knows which process runs what, `tuner_host`
is one of them seen from here; `tuner_process` runs there for our own algorithms, `trial_runner.tuner_host` for users'.
"""
