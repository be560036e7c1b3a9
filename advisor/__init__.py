"""How many SMs or CUs each of two jobs should get on one GPU, for the least energy per work."""

from advisor.errors import AdvisorError
from advisor.gpu import Gpu, Share
from advisor.job import Job
from advisor.records import Counters, PairPoint, SoloPoint

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
