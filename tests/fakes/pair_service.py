"""A service that knows sets of jobs: those of a table share so, all others are better apart."""

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kube_answers import ANSWER
from scripted_http import Reply

from advisor.core.gpu import PERCENTAGE

Shares = Mapping[tuple[str, ...], tuple[float, ...]]


def pair_service(shares: Shares, speed: float = 0.5, after_s: float = 0.0) -> Reply:
    """Answers `/v1/recommendations/batch` and `/v1/placements`.

    Args:
        shares: Of jobs, in the order of their names; of three and more one plan has each set once.
        speed: Relative speed of each at the low end.
        after_s: How long each answer takes.
    """
    return Reply(body=answering(shares, speed), after_s=after_s)


def answering(shares: Shares, speed: float = 0.5) -> Callable[[Any], Any]:
    """What is answered to a batch of questions."""

    def answer(body: Any) -> Any:
        if "gpus" in body:
            return _plan(shares, {job["job"]: job["count"] for job in body["jobs"]})
        asked = [[job["job"] for job in one["jobs"]] for one in body["requests"]]
        return {
            "answers": [{"answer": _of(shares, names, speed), "error": None} for names in asked]
        }

    return answer


def _of(shares: Shares, names: Sequence[str], speed: float) -> Any:
    known = {tuple(sorted(jobs)): dict(zip(jobs, of, strict=True)) for jobs, of in shares.items()}
    found = [known[key][name] for name in names] if (key := tuple(sorted(names))) in known else []
    answer = copy.deepcopy(ANSWER)
    if found:
        option = answer["choice"]
        option["split"] = "/".join(f"{share:g}" for share in found)
        option["energy_saved"] = {"value": 0.2, "low": 0.1, "high": 0.3}
        option["jobs"] = [
            {
                **option["jobs"][0], "job": name, "share_percent": share,
                "environment": {PERCENTAGE: f"{share:g}"},
                "speed": {"value": 1.1 * speed, "low": speed, "high": 1.2 * speed},
            }
            for name, share in zip(names, found, strict=True)
        ]  # fmt: skip
    else:
        answer |= {"verdict": "do not share", "choice": None}
    alone = {"rate": 1.0, "power_w": 300.0, "memory_used_mib": 2000.0}
    answer["jobs"] = [{"job": name, "rate_unit": "steps", "alone": alone} for name in names]
    return answer


def _plan(shares: Shares, counts: Mapping[str, int]) -> Any:
    sets = [jobs for jobs in shares if len(jobs) > 2 and Counter(jobs) <= Counter(counts)]
    job: dict[str, Any] = {"share_percent": 100.0, "speed": 1.0, "p99_ms": None, "environment": {}}
    return {
        "objective": "energy-efficiency", "gpus": [], "queued": 0, "seated": 0, "waiting": [],
        "sets": [
            {"launch": "", "gpu_model": "", "count": 1, "gpus": [n], "power_w": 1.0,
             "jobs": [{**job, "job": name} for name in jobs], "energy_saved": 0.2,
             "gpu_time_saved": 0.2}
            for n, jobs in enumerate(sets)
        ],
        "queue": None, "timed_out": False, "bundled_profiles": [], "warnings": [],
        "cards": len(sets), "model": {"version": "m1", "gpu_models": []},
        **dict.fromkeys(("cost", "bound", "gap"), 1.0),
        **dict.fromkeys(("energy_saved", "energy_saved_idle", "gpu_time_saved"), 0.2),
    }  # fmt: skip
