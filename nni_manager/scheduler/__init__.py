"""The heart: one loop per experiment, woken by events: snapshot → plan → record → act. Four rooms, each of which
imports those after it:

* `experiments` is about whole ones: `commands` takes commands, `launcher` makes and opens, `supervisor` keeps those
  that are open, each an `open_experiment`; `closed` reads the others, `leftovers` knows what they left behind, and
  `runner_reports` takes what trial runners post.
* `turns` carries out what was decided: `turn` runs snapshot, plan and record in one transaction, of what the `inbox`
  gathered; `experiment_loop` acts afterwards, by `actions` and `forgetting`, until the inbox wakes it again.
  `training_service` and `observer` keep one service connected and look at its jobs.
* `tuning` speaks to the tuner: `feed` says what it is asked, `judging` what its assessor is, `host` is its process seen
  from here, `watched` waits for it; `process` runs there for our own algorithms, `trial_runner.tuner_host` for users'.
* `planning` decides and is pure: `plan` for the whole, `open_trial` for the course of one, `experiment_status`,
  `service_choice`; from a `snapshot` to `decisions`.

Beside them is what more than one of them knows of an experiment: `live_spec`, `changes`, `daemon_warnings`, and its
`experiment_log`. Only this package changes a trial's status. Imports: config and below.
"""
