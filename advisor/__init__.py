"""How many SMs or CUs each of two jobs should get on one GPU, for the least energy per work."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from advisor.core.gpu import Gpu, Share
    from advisor.core.job import Job
    from advisor.core.records import Counters, PairPoint, SoloPoint
    from advisor.errors import AdvisorError
    from advisor_advice.ask.recommend import recommend
    from advisor_advice.ask.replicas import replicas
    from advisor_profiling.energy.meter import energy
    from advisor_training.dataset.frames import load_dataset
    from advisor_training.learn.estimator import PriorRegressor
    from advisor_training.training_data import training_data

__all__ = [
    "AdvisorError",
    "Counters",
    "Gpu",
    "Job",
    "PairPoint",
    "PriorRegressor",
    "Share",
    "SoloPoint",
    "__version__",
    "energy",
    "load_dataset",
    "recommend",
    "replicas",
    "training_data",
]

__version__ = "0.1.0"

_MODULES = {
    "AdvisorError": "advisor.errors",
    "Counters": "advisor.core.records",
    "Gpu": "advisor.core.gpu",
    "Job": "advisor.core.job",
    "PairPoint": "advisor.core.records",
    "Share": "advisor.core.gpu",
    "PriorRegressor": "advisor_training.learn.estimator",
    "SoloPoint": "advisor.core.records",
    "energy": "advisor_profiling.energy.meter",
    "load_dataset": "advisor_training.dataset.frames",
    "recommend": "advisor_advice.ask.recommend",
    "replicas": "advisor_advice.ask.replicas",
    "training_data": "advisor_training.training_data",
}
"""Where each name is; what is called lies in the folders above, which import this one."""

_EXTRAS = {
    **dict.fromkeys(("recommend", "replicas"), "advise"),
    **dict.fromkeys(("PriorRegressor", "load_dataset", "training_data"), "train"),
}
"""The extra that has what a call needs next to what every installation has."""


def __getattr__(name: str) -> Any:
    """Import what is asked for: each job that reports its progress imports this package."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_MODULES[name]), name)
    except ModuleNotFoundError as error:
        if name not in _EXTRAS or (error.name or "").startswith("advisor"):
            raise
        raise ImportError(
            f"advisor.{name} needs {error.name}, which is not installed: "
            f"pip install 'sm-advisor[{_EXTRAS[name]}]'",
            name=error.name,
        ) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
