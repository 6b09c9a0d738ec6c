"""The heart: one loop per experiment, woken by events: snapshot → plan → record → act. Four rooms:

* `planning` decides and is pure: `plan` for the whole, `open_trial` for the course of one, `experiment_status`,
  `service_choice`; from a `snapshot` to `decisions`. It reads no database: the store has read what it goes by.
* `turns` carries that out: `turn` runs snapshot, plan and record in one transaction, of what the `inbox` gathered;
  `experiment_loop` acts afterwards, by `actions` and `forgetting`, until the inbox wakes it again. `training_service`
  and `observer` keep one service connected and look at its jobs, `runner_reports` takes what trial runners post.
* `tuning` speaks to the tuner: `feed` says what it is asked, `judging` what its assessor is, `host` is its process seen
  from here, `watched` waits for it; `process` runs there for our own algorithms, `trial_runner.tuner_host` for users'.
* `experiments` is about whole ones: `service` takes commands, `launcher` makes and opens, `supervisor` keeps those that
  are open, each an `open_experiment`; `closed` reads the others, `leftovers` knows what they left behind.

Only this package changes a trial's status. Imports: config and below.
"""
