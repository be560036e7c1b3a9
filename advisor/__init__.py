"""How many SMs or CUs each of two jobs should get on one GPU, for the least energy per work."""

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
