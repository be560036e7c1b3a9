"""A service that knows pairs: those of a table share as it says, all others are better apart."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from kube_answers import ANSWER
from scripted_http import Reply

from advisor.core.gpu import PERCENTAGE

Shares = Mapping[tuple[str, str], tuple[float, float]]


def pair_service(shares: Shares, speed: float = 0.5, after_s: float = 0.0) -> Reply:
    """Answers `/v1/recommendations/batch` and, of two, `/v1/sets`.

    Args:
        shares: Of two jobs, in the order of their names.
        speed: Relative speed of each at the low end.
        after_s: How long each answer takes.
    """
    return Reply(body=answering(shares, speed), after_s=after_s)


def answering(shares: Shares, speed: float = 0.5) -> Callable[[Any], Any]:
    """What is answered to a batch of questions."""

    def answer(body: Any) -> Any:
        if "requests" not in body:  # /v1/sets
            a, b = (job["job"] for job in body["jobs"])
            return _of_set(shares, a, b, speed)
        asked = [[job["job"] for job in one["jobs"]] for one in body["requests"]]
        return {"answers": [{"answer": _of(shares, a, b, speed), "error": None} for a, b in asked]}

    return answer


def _of(shares: Shares, a: str, b: str, speed: float) -> Any:
    found = shares.get((a, b)) or tuple(reversed(shares.get((b, a), ())))
    answer = copy.deepcopy(ANSWER)
    for option in (answer["choice"], answer["candidates"][0]):
        option["sharing"] = "limited" if found else "exclusive"
        option["split"] = "/".join(f"{share:g}" for share in found) or "exclusive"
        option["energy_saved"] = {"value": 0.2, "low": 0.1, "high": 0.3}
        for job, name, share in zip(option["jobs"], (a, b), found or (50, 50), strict=True):
            job |= {"job": name, "share_percent": share, "environment": {PERCENTAGE: f"{share:g}"}}
            job["speed"] = {"value": 1.1 * speed, "low": speed, "high": 1.2 * speed}
    alone = {"rate": 1.0, "power_w": 300.0, "memory_used_mib": 2000.0}
    answer["jobs"] = [{"job": name, "rate_unit": "steps", "alone": alone} for name in (a, b)]
    return answer


def _of_set(shares: Shares, a: str, b: str, speed: float) -> Any:
    pair = _of(shares, a, b, speed)
    option = pair["choice"]
    interval = option["energy_saved"]
    way: dict[str, Any] = {
        "name": option["split"], "sharing": option["sharing"], "isolates": False,
        "jobs": option["jobs"], "power_w": interval, "energy_saved": interval,
        "energy_saved_idle": interval, "gpu_time_saved": interval, "cost_saved": None,
        "violations": [],
    }  # fmt: skip
    needs = {"memory_mib": None, "memory_of_mib": None, "host_cores": None}
    return {
        "jobs": pair["jobs"], "gpu_model": pair["gpu_model"], "objective": pair["objective"],
        "verdict": "share", "choice": None if option["split"] == "exclusive" else way["name"],
        "call": None, "ways": [way], "needs": {**needs, "mps_clients": 2, "mps_clients_most": 48},
        "near": None, "searched": 1, "warnings": [], "coverage": 0.9, "card": None, "drifts": [],
        "measured": None, "fewer": None,
    }  # fmt: skip
