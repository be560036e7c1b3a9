"""How many SMs or CUs each of two jobs should get on one GPU, for the least energy per work."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from advisor.core.gpu import Gpu, Share
    from advisor.core.job import Job
    from advisor.core.records import Counters, PairPoint, SoloPoint
    from advisor.errors import AdvisorError

__all__ = [
    "AdvisorError",
    "Counters",
    "Gpu",
    "Job",
    "PairPoint",
    "Share",
    "SoloPoint",
    "__version__",
]

__version__ = "0.1.0"

_MODULES = {
    "AdvisorError": "advisor.errors",
    "Counters": "advisor.core.records",
    "Gpu": "advisor.core.gpu",
    "Job": "advisor.core.job",
    "PairPoint": "advisor.core.records",
    "Share": "advisor.core.gpu",
    "SoloPoint": "advisor.core.records",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: each job that reports its progress imports this package."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
