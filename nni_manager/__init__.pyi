from nni_manager import space as space
from nni_manager.client.connection import Unreachable as Unreachable
from nni_manager.domain.errors import ConfigInvalid as ConfigInvalid
from nni_manager.domain.errors import Conflict as Conflict
from nni_manager.domain.errors import InvalidInput as InvalidInput
from nni_manager.domain.errors import NniManagerError as NniManagerError
from nni_manager.domain.errors import NotFound as NotFound
from nni_manager.programs.asynchronous import AsyncExperiment as AsyncExperiment
from nni_manager.programs.experiment import Experiment as Experiment
from nni_manager.programs.optimize import optimize as optimize
from nni_manager.programs.waiting import ExperimentFailed as ExperimentFailed

__all__: list[str]
__version__: str
