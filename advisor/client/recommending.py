"""Which split, and who shares with whom: the calls that work something out and change nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from advisor.client.answers import Placement, Recommendation
from advisor.client.errors import AnswerError, ApiError
from advisor.client.exchange import Ask, Flow, exchange
from advisor.client.reading import read
from advisor.core.objectives import DEFAULT_OBJECTIVE

SEARCH_S = 10.0
"""How long a placement is searched for, unless told otherwise."""

_PREDICTING_S = 30.0
"""What predicting all pairs of a large placement may take on top of the search."""

MinSpeed: TypeAlias = float | Mapping[str, float] | None
"""Minimum relative speed, of all jobs or by name of job; 1 is as fast as alone."""

MaxP99: TypeAlias = float | Mapping[str, float] | None
"""Longest p99 latency, ms: of all jobs that answer requests, or by name of job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A recommendation that is wanted, for `recommend_batch`.

    Attributes:
        jobs: The first and the second job.
        gpu: GPU model; None: the one that both profiles have in common.
        objective: What is maximised.
        max_p99_ms: Longest p99 latency, as far as that can be known before.
        max_power_w: Most power of the GPU.
        memory_mib: Memory of the card; None: that of its model, where it is known.
        fine: Every split in steps of two SMs; else the nine splits.
        work_s: What each job has to do, in seconds that it takes alone; None: they run on and on.
    """

    jobs: tuple[str, str]
    gpu: str | None = None
    objective: str = DEFAULT_OBJECTIVE
    min_speed: MinSpeed = None
    max_p99_ms: MaxP99 = None
    max_power_w: float | None = None
    memory_mib: float | None = None
    fine: bool = False
    work_s: tuple[float, float] | None = None

    def body(self) -> dict[str, Any]:
        """As requests carry it."""
        return {
            "jobs": list(self.jobs),
            **given(gpu=self.gpu),
            "objective": self.objective,
            "constraints": constraints(
                self.min_speed, self.max_power_w, self.memory_mib, self.max_p99_ms
            ),
            "splits": "fine" if self.fine else "nine",
            **given(work_s=list(self.work_s) if self.work_s else None),
        }


def recommend(
    job_a: str,
    job_b: str,
    *,
    gpu: str | None = None,
    objective: str = DEFAULT_OBJECTIVE,
    min_speed: MinSpeed = None,
    max_p99_ms: MaxP99 = None,
    max_power_w: float | None = None,
    memory_mib: float | None = None,
    fine: bool = False,
    work_s: tuple[float, float] | None = None,
) -> Flow[Recommendation]:
    """Which split of one GPU does the most for two jobs; see `Wanted` for the parameters."""
    wanted = Wanted(
        jobs=(job_a, job_b),
        gpu=gpu,
        objective=objective,
        min_speed=min_speed,
        max_p99_ms=max_p99_ms,
        max_power_w=max_power_w,
        memory_mib=memory_mib,
        fine=fine,
        work_s=work_s,
    )
    return exchange(_ask("/v1/recommendations", wanted.body()), _recommendation)


def recommend_batch(wanted: Sequence[Wanted]) -> Flow[tuple[Recommendation | ApiError, ...]]:
    """Many recommendations at once, in order; an error that one of them has is in its place."""
    body = {"requests": [one.body() for one in wanted]}
    return exchange(_ask("/v1/recommendations/batch", body), _recommendations)


def place(
    jobs: Mapping[str, int] | Sequence[str],
    gpus: int,
    *,
    work_s: float | Mapping[str, float] | None = None,
    gpu: str | None = None,
    objective: str = DEFAULT_OBJECTIVE,
    min_speed: MinSpeed = None,
    max_power_w: float | None = None,
    memory_mib: float | None = None,
    time_limit_s: float = SEARCH_S,
) -> Flow[Placement]:
    """Who shares a GPU with whom in a queue of jobs, at what split, when and where.

    Args:
        jobs: How many of each name, or one name for each job in the order of the queue.
        gpus: How many GPUs there are.
        work_s: Time that a job takes alone, of all jobs or by name; an hour where not given.
        gpu: Their model; None: the one that all profiles have in common.
        objective: `energy-efficiency` or `throughput`.
        min_speed: Minimum relative speed of each job.
        max_power_w: Most power of each GPU.
        memory_mib: Memory of each GPU; None: that of its model, where it is known.
        time_limit_s: Most time for the search.
    """
    body = {
        "jobs": dict(jobs) if isinstance(jobs, Mapping) else list(jobs),
        "gpus": gpus,
        **given(work_s=dict(work_s) if isinstance(work_s, Mapping) else work_s, gpu=gpu),
        "objective": objective,
        "constraints": constraints(min_speed, max_power_w, memory_mib),
        "time_limit_s": time_limit_s,
    }
    ask = _ask("/v1/placements", body, patience_s=time_limit_s + _PREDICTING_S)
    return exchange(ask, lambda found: read(Placement, found))


def constraints(
    min_speed: MinSpeed,
    max_power_w: float | None,
    memory_mib: float | None,
    max_p99_ms: MaxP99 = None,
) -> dict[str, Any]:
    """What an answer must keep, as requests carry it."""
    speed = dict(min_speed) if isinstance(min_speed, Mapping) else min_speed
    p99_ms = dict(max_p99_ms) if isinstance(max_p99_ms, Mapping) else max_p99_ms
    return given(min_speed=speed, max_power_w=max_power_w, memory_mib=memory_mib, max_p99_ms=p99_ms)


def given(**values: Any) -> dict[str, Any]:
    """Those that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def _ask(path: str, body: object, *, patience_s: float = 0.0) -> Ask:
    return Ask(method="POST", path=path, body=body, patience_s=patience_s)


def _recommendation(found: Any) -> Recommendation:
    return read(Recommendation, found)


def _recommendations(found: Any) -> tuple[Recommendation | ApiError, ...]:
    match found:
        case {"answers": [*answers]}:
            return tuple(map(_of_batch, answers))
        case _:
            raise AnswerError("the answer has no list of answers")


def _of_batch(found: Any) -> Recommendation | ApiError:
    match found:
        case {"error": {"code": str() as code, "message": str() as message}}:
            return ApiError(code, message, status=200)
        case {"answer": answer}:
            return _recommendation(answer)
        case _:
            raise AnswerError("one of the answers is neither an answer nor an error")
