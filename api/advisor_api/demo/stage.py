"""One GPU of a demonstration, on which recorded windows are launched one after the other.

Nothing is made up but time: rates, power and latencies are those of the windows, splits and
forecasts those of the advice, and what comes of them is counted by what watches every launch.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from advisor_api.demo.programme import Programme
from advisor_api.demo.show import Show
from advisor_profiling.testbed.replay import ReplayTestbed

LOOK_S = 9.0
"""Virtual time between two looks; after longer ones a monitor says that nobody watched."""

_CUE_S = 600.0
"""A window was half a minute; so often the next one of the same jobs plays, or the same again."""

_LENGTHS_S, _PAUSES_S = (2400.0, 14_000.0), (120.0, 2400.0)
"""Of launches, and of the time between two."""


class DemoGpu:
    """A GPU on which launches play.

    Args:
        number: Of the GPU, from 0; its day is drawn by it.
        root: Folder of all launches.
        begin: Moment at which the day begins.
        programme: Of its GPU model.
    """

    def __init__(self, number: int, root: Path, begin: datetime, programme: Programme) -> None:
        self._number, self._root, self._begin, self._programme = number, root, begin, programme
        self._chance = random.Random(number)
        self.testbed = ReplayTestbed(
            programme.solo, programme.together, "mps", noise=f"demo {number}"
        )
        uuid = f"GPU-replay-{number}"
        self.testbed.gpu = replace(self.testbed.gpu, uuid=uuid, index=number)
        self._show: Show | None = None
        self._next_s = 60.0 * number
        self._ends_s = self._cue_s = 0.0

    def moment(self) -> datetime:
        """The moment that plays."""
        return self._begin + timedelta(seconds=self.testbed.clock.now_s())

    def advance(self, to_s: float, go_on: Callable[[], bool]) -> None:
        """Play up to that time, s after the begin."""
        clock = self.testbed.clock
        while clock.now_s() + LOOK_S <= to_s and go_on():
            clock.sleep(LOOK_S)
            self._look(clock.now_s())

    def close(self) -> None:
        """Let go of what plays."""
        if self._show:
            self._show.close()

    def _look(self, now_s: float) -> None:
        show = self._show
        if show is None:
            if now_s >= self._next_s:
                self._begin_show(now_s)
            return
        if now_s >= self._cue_s:
            self._cue_s = now_s + _CUE_S
            self.testbed.cue()
        show.look()
        if now_s >= self._ends_s:
            show.end()
            self._show, self._next_s = None, now_s + self._chance.uniform(*_PAUSES_S)

    def _begin_show(self, now_s: float) -> None:
        drawn = self._programme.draw(self._chance, self.testbed.gpu)
        launch_id = f"{self.moment():%Y%m%d-%H%M%S}-{self._number:06}"
        spec = replace(drawn, launch_id=launch_id, gpu=self.testbed.gpu.uuid)
        self._show = Show(self._root, spec, self.testbed, self.moment)
        self._ends_s = now_s + self._chance.uniform(*_LENGTHS_S)
        self._cue_s = now_s + _CUE_S
