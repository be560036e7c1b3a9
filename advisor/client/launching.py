"""Launches: the calls that start two jobs on one GPU, watch them, and stop them."""

import math
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace

from advisor.client.errors import TooSlowError
from advisor.client.exchange import Ask, Exchange, quoted
from advisor.launch.records.answers import Launch, LaunchList, LaunchPlan
from advisor.launch.records.status import LaunchStatus
from advisor.wire.launch_request import LaunchRequest

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

    def stop_launch(self, launch: LaunchStatus | str) -> Launch:
        """Ask for a launch to be stopped, in the order that is safe; `wait` says when it is."""
        return self._ask(Ask(method="DELETE", path=_of(launch)), Launch)

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
        ends = time.monotonic() + (math.inf if timeout_s is None else timeout_s)
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


def _start(asked: LaunchRequest, headers: Mapping[str, str]) -> Ask:
    return Ask(method="POST", path=PATH, body=asked, headers=headers)


def _of(launch: LaunchStatus | str) -> str:
    return f"{PATH}/{quoted(launch if isinstance(launch, str) else launch.launch_id)}"
