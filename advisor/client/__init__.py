"""The service from Python: `Client`; docs/client.md shows how.

Needs httpx, which the extra `client` brings.
"""

import importlib.util

if importlib.util.find_spec("httpx") is None:
    from advisor.installed import install

    raise ModuleNotFoundError(
        f"advisor.client needs httpx, which is not installed: {install('client')}",
        name="httpx",
    )

from advisor.client.client import (
    AnswerError,
    ApiError,
    Client,
    ClientError,
    TooSlowError,
    UnreachableError,
)
from advisor.launch.spec import JobStatus, LaunchSpec, LaunchStatus
from advisor.validity.sensor_record import SensorRecord
from advisor.wire.answers import BatchItem, Gains, Recommendation
from advisor.wire.lists import (
    AuditEntry,
    Champion,
    JobRow,
    ModelDetails,
    ModelList,
    PairPoints,
    ProfilePoints,
    TakenIn,
)
from advisor.wire.placement import Placement
from advisor.wire.power import InputAsked, InputPrediction, InputPredictions, KernelReport
from advisor.wire.requests import (
    GainsRequest,
    JobCopies,
    JobRequest,
    LaunchRequest,
    PlacementRequest,
    QueuedJobs,
    RecommendationRequest,
)

__all__ = [
    "AnswerError",
    "ApiError",
    "AuditEntry",
    "BatchItem",
    "Champion",
    "Client",
    "ClientError",
    "Gains",
    "GainsRequest",
    "InputAsked",
    "InputPrediction",
    "InputPredictions",
    "JobCopies",
    "JobRequest",
    "JobRow",
    "JobStatus",
    "KernelReport",
    "LaunchRequest",
    "LaunchSpec",
    "LaunchStatus",
    "ModelDetails",
    "ModelList",
    "PairPoints",
    "Placement",
    "PlacementRequest",
    "ProfilePoints",
    "QueuedJobs",
    "Recommendation",
    "RecommendationRequest",
    "SensorRecord",
    "TakenIn",
    "TooSlowError",
    "UnreachableError",
]
