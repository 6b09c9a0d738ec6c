"""The scheduler: one loop per experiment, woken by events: snapshot → plan → record → act. Its layers, top down:

* `experiments`: whole experiments. `commands` has the operations of the API; `launcher` creates and opens experiments;
  `supervisor` runs the open ones, each an `open_experiment`; `closed` reads the others; `leftovers` ends jobs of closed
  ones; `runner_reports` handles the posts of trial runners.
* `turns`: one turn. `inbox` collects events, `turn` runs snapshot, plan and record in one transaction, and
  `experiment_loop` makes the calls, with `actions` and `forgetting`. `training_service` and `observer` keep one service
  connected and observe its jobs.
* `tuning`: the tuner. `feed` makes its calls and the assessor's. `host` is its process, a child of the daemon, watched
  for silence; it runs `process` for our algorithms and `trial_runner.tuner_host` for users' classes.
* `planning`: pure decisions, from a `snapshot` to `decisions`: `plan` for the experiment, `open_trial` for one trial,
  `experiment_status`, `service_choice`.

Shared by the layers: `changes`, with the daemon's warnings, and `experiment_log`. Only this package changes a
trial's status.
"""
