from nni_manager.domain.errors import ConfigInvalid as ConfigInvalid
from nni_manager.domain.errors import Conflict as Conflict
from nni_manager.programs.asynchronous import AsyncExperiment as AsyncExperiment
from nni_manager.programs.experiment import Experiment as Experiment
from nni_manager.programs.optimize import optimize as optimize
from nni_manager.programs.waiting import ExperimentFailed as ExperimentFailed

__version__: str
