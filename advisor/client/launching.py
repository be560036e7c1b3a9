"""Launches: the calls that start two jobs on one GPU, watch them, and stop them."""

import math
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace

from advisor.client.errors import TooSlowError
from advisor.client.exchange import Ask, Exchange, quoted
from advisor.launch.records.answers import (
    Launch,
    LaunchHistory,
    LaunchJoin,
    LaunchList,
    LaunchPlan,
)
from advisor.launch.records.history import History
from advisor.launch.records.overview import Overview
from advisor.launch.records.status import LaunchStatus
from advisor.wire.requests import JoinLaunchRequest, LaunchRequest

PATH = "/v1/launches"

LOOK_EVERY_S = 1.0
"""A launch says once a second how it stands."""


class Launching(Exchange):
    """Calls about launches."""

    def launch(self, asked: LaunchRequest, *, idempotency_key: str | None = None) -> Launch:
        """Start two jobs that are registered with the service on one of its GPUs.

        Args:
            asked: What is to run, and how.
            idempotency_key: A second call with the same key finds the launch of the first, so a
                program that was killed after it asked can ask again. None: a new one, so that what
                goes wrong on the way never starts the jobs twice.
        """
        headers = {"Idempotency-Key": idempotency_key or secrets.token_urlsafe(24)}
        return self._ask(_start(asked, headers), Launch)

    def plan_launch(self, asked: LaunchRequest) -> LaunchPlan:
        """What `launch` would start; nothing is started."""
        return self._ask(_start(replace(asked, dry_run=True), {}), LaunchPlan)

    def launches(
        self, *, active: bool = False, limit: int = 100, before: str | None = None
    ) -> tuple[Launch, ...]:
        """Launches of all hosts of the service's database, the newest first.

        Args:
            active: Only those that are not over.
            limit: At most this many, up to 1000.
            before: Only those before the launch of this id.
        """
        only = "true" if active else None
        return self._get(PATH, LaunchList, active=only, limit=limit, before=before).launches

    def launch_status(self, launch: LaunchStatus | str) -> Launch:
        """How a launch, or the launch of this id, stands now."""
        return self._get(_of(launch), Launch)

    def launch_history(self, launch: LaunchStatus | str) -> History | None:
        """What it did over its time; None: it has just begun, or runs on another host."""
        return self._get(f"{_of(launch)}/history", LaunchHistory).history

    def overview(self) -> Overview:
        """GPUs, who runs on them, launches with their history, and what was saved, observed."""
        return self._get("/v1/overview", Overview)

    def stop_launch(self, launch: LaunchStatus | str) -> Launch:
        """Ask for a launch to be stopped, in the order that is safe; `wait` says when it is."""
        return self._ask(Ask(method="DELETE", path=_of(launch)), Launch)

    def join_launch(
        self,
        launch: LaunchStatus | str,
        asked: JoinLaunchRequest,
        *,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
        every_s: float = LOOK_EVERY_S,
    ) -> LaunchJoin:
        """Let one more job run beside those of a launch that runs, and give what came of it.

        Args:
            launch: Or its id.
            asked: The job, and its share where it is not to be advised.
            idempotency_key: As of `launch`.
            timeout_s: Then there is a TooSlowError, and it may join all the same; None: no end.
            every_s: Time between two looks.
        """
        headers = {"Idempotency-Key": idempotency_key or secrets.token_urlsafe(24)}
        path = f"{_of(launch)}/joins"
        said = self._ask(Ask(method="POST", path=path, body=asked, headers=headers), LaunchJoin)
        ends = _after(timeout_s)
        while said.state == "asked":
            if time.monotonic() >= ends:
                raise TooSlowError(
                    f"{said.job} has not joined {said.launch_id} after {timeout_s:g} s",
                    fix=f"look again: launch_join({said.launch_id!r}, {said.join_id!r})",
                )
            time.sleep(every_s)
            said = self.launch_join(said.launch_id, said.join_id)
        return said

    def launch_join(self, launch: LaunchStatus | str, join_id: str) -> LaunchJoin:
        """What has become of a job that was to join a launch, by the `join_id` of its answer."""
        return self._get(f"{_of(launch)}/joins/{quoted(join_id)}", LaunchJoin)

    def wait(
        self,
        launch: LaunchStatus | str,
        *,
        timeout_s: float | None = None,
        every_s: float = LOOK_EVERY_S,
    ) -> Launch:
        """Look at a launch until it is over, well or not, and give how it ended.

        Args:
            launch: Or its id.
            timeout_s: Then there is a TooSlowError, and the launch goes on; None: no end.
            every_s: Time between two looks.
        """
        ends = _after(timeout_s)
        while True:
            seen = self.launch_status(launch)
            if seen.over:
                return seen
            if (left_s := ends - time.monotonic()) <= 0:
                raise TooSlowError(
                    f"the launch {seen.launch_id} is {seen.state} after {timeout_s:g} s",
                    fix="wait longer; stop_launch ends it",
                )
            time.sleep(min(every_s, left_s))


def _after(timeout_s: float | None) -> float:
    """When time is over, by the clock that goes on."""
    return time.monotonic() + (math.inf if timeout_s is None else timeout_s)


def _start(asked: LaunchRequest, headers: Mapping[str, str]) -> Ask:
    return Ask(method="POST", path=PATH, body=asked, headers=headers)


def _of(launch: LaunchStatus | str) -> str:
    return f"{PATH}/{quoted(launch if isinstance(launch, str) else launch.launch_id)}"
