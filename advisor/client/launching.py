"""Launches: the calls that start two jobs on one GPU, watch them, and stop them."""

import math
import secrets
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from advisor.client.answers import Launch, LaunchPlan
from advisor.client.errors import TooSlowError
from advisor.client.exchange import Ask, Flow, Pause, exchange, quoted
from advisor.client.reading import read, read_items
from advisor.client.recommending import MaxP99, MinSpeed, constraints, given
from advisor.launch.records.spec import WhenOneEnds
from advisor.launch.records.status import LaunchStatus

PATH = "/v1/launches"

LOOK_EVERY_S = 1.0
"""A launch says once a second how it stands."""


def launch(
    job_a: str,
    job_b: str,
    *,
    then: Sequence[tuple[str, str]] = (),
    split: str | None = None,
    gpu: int | str | None = None,
    objective: str | None = None,
    min_speed: MinSpeed = None,
    max_p99_ms: MaxP99 = None,
    max_power_w: float | None = None,
    memory_mib: float | None = None,
    allow_unsafe: bool | None = None,
    stop_on_wrong_results: bool | None = None,
    when_one_ends: WhenOneEnds | None = None,
    duration_s: float | None = None,
    hang_s: float | None = None,
    idempotency_key: str | None = None,
) -> Flow[Launch]:
    """Start two jobs that are registered with the service on one of its GPUs.

    What is None is as the service has it.

    Args:
        job_a: The first job.
        job_b: The second job.
        then: Pairs that follow on the same GPU, one after the other.
        split: Such as `30/70`, or `uncapped` or `time-sliced`; None: the recommended one.
        gpu: Index or UUID of the GPU.
        objective: What the recommended split is to maximise.
        min_speed: Minimum relative speed that it must keep.
        max_p99_ms: Longest p99 latency that it must keep, as far as that can be known.
        max_power_w: Most power that it may draw.
        memory_mib: Memory of the card.
        allow_unsafe: Take `split` also at counts of SMs at which results are wrong.
        stop_on_wrong_results: Stop both when a job reports a wrong result; else there is a warning.
            None: at a recommended split.
        when_one_ends: `keep`: the other goes on under its limit; `stop`: it is stopped.
        duration_s: Both are stopped after this time together.
        hang_s: A job without progress for this long is taken to hang.
        idempotency_key: A second call with the same key finds the launch of the first, so a
            program that was killed after it asked can ask again. None: a new one, so that what
            goes wrong on the way never starts the jobs twice.
    """
    limits = constraints(min_speed, max_power_w, memory_mib, max_p99_ms)
    body = {
        **_wanted(job_a, job_b, then, split, gpu, objective),
        **given(constraints=limits or None),
        **given(allow_unsafe=allow_unsafe, stop_on_wrong_results=stop_on_wrong_results),
        **given(when_one_ends=when_one_ends),
        **given(duration_s=duration_s, hang_s=hang_s),
    }
    headers = {"Idempotency-Key": idempotency_key or secrets.token_urlsafe(24)}
    ask = Ask(method="POST", path=PATH, body=body, headers=headers)
    return exchange(ask, partial(read, Launch))


def plan_launch(
    job_a: str,
    job_b: str,
    *,
    then: Sequence[tuple[str, str]] = (),
    split: str | None = None,
    gpu: int | str | None = None,
    objective: str | None = None,
    min_speed: MinSpeed = None,
    max_p99_ms: MaxP99 = None,
    max_power_w: float | None = None,
    memory_mib: float | None = None,
    allow_unsafe: bool | None = None,
) -> Flow[LaunchPlan]:
    """What `launch` would start; nothing is started."""
    limits = constraints(min_speed, max_power_w, memory_mib, max_p99_ms)
    body = {
        **_wanted(job_a, job_b, then, split, gpu, objective),
        **given(constraints=limits or None),
        **given(allow_unsafe=allow_unsafe),
        "dry_run": True,
    }
    return exchange(Ask(method="POST", path=PATH, body=body), partial(read, LaunchPlan))


def launches(
    *, active: bool = False, limit: int = 100, before: str | None = None
) -> Flow[tuple[Launch, ...]]:
    """Launches of all hosts of the service's database, the newest first.

    Args:
        active: Only those that are not over.
        limit: At most so many, up to 1000.
        before: Only those before the launch of this id.
    """
    query = {"active": "true" if active else None, "limit": limit, "before": before}
    ask = Ask(method="GET", path=PATH, query=query)
    return exchange(ask, partial(read_items, Launch, name="launches"))


def launch_status(launch: LaunchStatus | str) -> Flow[Launch]:
    """How a launch, or the launch of this id, stands now."""
    return exchange(Ask(method="GET", path=_of(launch)), partial(read, Launch))


def stop_launch(launch: LaunchStatus | str) -> Flow[Launch]:
    """Ask for a launch to be stopped, in the order that is safe; `wait` says when it is."""
    return exchange(Ask(method="DELETE", path=_of(launch)), partial(read, Launch))


def wait(
    launch: LaunchStatus | str, *, timeout_s: float | None = None, every_s: float = LOOK_EVERY_S
) -> Flow[Launch]:
    """Look at a launch until it is over, well or not, and give how it ended.

    Args:
        launch: Or its id.
        timeout_s: Then there is a TooSlowError, and the launch goes on; None: no end.
        every_s: Time between two looks.
    """
    ends = time.monotonic() + (math.inf if timeout_s is None else timeout_s)
    while True:
        seen = yield from launch_status(launch)
        if seen.over:
            return seen
        if (left_s := ends - time.monotonic()) <= 0:
            raise TooSlowError(
                f"the launch {seen.launch_id} is {seen.state} after {timeout_s:g} s",
                fix="wait longer; stop_launch ends it",
            )
        yield Pause(min(every_s, left_s))


def _wanted(
    job_a: str,
    job_b: str,
    then: Sequence[tuple[str, str]],
    split: str | None,
    gpu: int | str | None,
    objective: str | None,
) -> dict[str, Any]:
    following = [list(pair) for pair in then] or None
    return {
        "jobs": [job_a, job_b],
        **given(then=following, split=split, gpu=gpu, objective=objective),
    }


def _of(launch: LaunchStatus | str) -> str:
    return f"{PATH}/{quoted(launch if isinstance(launch, str) else launch.launch_id)}"
