"""The service from Python: `Client` blocks, `AsyncClient` is awaited. docs/client.md shows both.

Needs httpx: `pip install 'sm-advisor[client]'`.
"""

import importlib.util

if importlib.util.find_spec("httpx") is None:
    raise ImportError(
        "advisor.client needs httpx, which is not installed: pip install 'sm-advisor[client]'"
    )

from advisor.client.answers import (
    Group,
    Launch,
    LaunchPlan,
    ModelName,
    Option,
    PlacedJob,
    Placement,
    PlannedJob,
    PlannedPair,
    Recommendation,
    Rule,
    SimplerWay,
)
from advisor.client.clients import AsyncClient, Client
from advisor.client.errors import (
    AnswerError,
    ApiError,
    ClientError,
    TooSlowError,
    UnreachableError,
)
from advisor.client.listings import (
    AuditEntry,
    Champion,
    Change,
    JobRow,
    Model,
    ModelRow,
    Models,
    PairPoints,
    Profile,
    TakenIn,
)
from advisor.client.recommending import Wanted

__all__ = [
    "AnswerError",
    "ApiError",
    "AsyncClient",
    "AuditEntry",
    "Champion",
    "Change",
    "Client",
    "ClientError",
    "Group",
    "JobRow",
    "Launch",
    "LaunchPlan",
    "Model",
    "ModelName",
    "ModelRow",
    "Models",
    "Option",
    "PairPoints",
    "PlacedJob",
    "Placement",
    "PlannedJob",
    "PlannedPair",
    "Profile",
    "Recommendation",
    "Rule",
    "SimplerWay",
    "TakenIn",
    "TooSlowError",
    "UnreachableError",
    "Wanted",
]
