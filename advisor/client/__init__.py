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
from advisor.launch.overview import Launch, LaunchJoin, LaunchPlan
from advisor.validity.sensor_record import SensorRecord
from advisor.wire.input_power import InputAsked, InputPrediction, InputPredictions
from advisor.wire.kernel_power import KernelReport
from advisor.wire.launch_request import JoinLaunchRequest, LaunchRequest, NextPair
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
from advisor.wire.partners import Gains
from advisor.wire.placement import Placement, SetPlacement
from advisor.wire.placement_requests import PlacementRequest, RunningJobs, SetPlacementRequest
from advisor.wire.recommendation import BatchItem, Recommendation
from advisor.wire.requests import (
    GainsRequest,
    JobRequest,
    QueuedJobs,
    RecommendationRequest,
    ReplicasRequest,
    SetRequest,
)
from advisor.wire.sets import Replicas, SetAdvice

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
    "JobRequest",
    "JobRow",
    "JoinLaunchRequest",
    "KernelReport",
    "Launch",
    "LaunchJoin",
    "LaunchPlan",
    "LaunchRequest",
    "ModelDetails",
    "ModelList",
    "NextPair",
    "PairPoints",
    "Placement",
    "PlacementRequest",
    "ProfilePoints",
    "QueuedJobs",
    "Recommendation",
    "RecommendationRequest",
    "Replicas",
    "ReplicasRequest",
    "RunningJobs",
    "SensorRecord",
    "SetAdvice",
    "SetPlacement",
    "SetPlacementRequest",
    "SetRequest",
    "TakenIn",
    "TooSlowError",
    "UnreachableError",
]
