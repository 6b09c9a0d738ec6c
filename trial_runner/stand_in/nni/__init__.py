"""Stands in for `nni` if it is not installed: the parts that trial code and user tuners need, in a lightweight form.

A real `nni` further along `sys.path` takes over completely. Otherwise: parameters, results, ids and `is_ending` here,
and the modules `tuner`, `assessor`, `utils`, `common.hpo_utils`, `typehint`, `parameter_expressions` and, where
nni-manager is installed, `experiment`.
Everything else says that it needs the real package.
"""

import nni_upstream

if not nni_upstream.use_real_nni(__name__, __file__):
    from nni.absent import attribute as __getattr__  # noqa: F401 - Python asks it for missing names
    from nni.trial import (
        get_current_parameter,
        get_experiment_id,
        get_next_parameter,
        get_next_parameters,
        get_sequence_id,
        get_trial_id,
        is_ending,
        report_final_result,
        report_intermediate_result,
    )

    #: The manager's version, and that this is not the package itself.
    __version__ = "0.6.0+stand-in"

    __all__ = [
        "ClassArgsValidator",
        "Experiment",
        "NoMoreTrialError",
        "dump",
        "enable_global_logging",
        "get_current_parameter",
        "get_experiment_id",
        "get_next_parameter",
        "get_next_parameters",
        "get_sequence_id",
        "get_trial_id",
        "is_ending",
        "load",
        "report_final_result",
        "report_intermediate_result",
        "silence_stdout",
    ]
