"""Plays a day of recorded launches in ten minutes, into the home that a service looks after.

Nothing is made up but time: rates, power and latencies are those of recorded windows, splits and
forecasts those of the advice, and what comes of them is counted by what watches every launch.
"""

import random
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from advisor.core.gpu import Gpu
from advisor.core.telemetry import POWER_GPU
from advisor.formats.job_file import sound_jobs
from advisor.launch.records.overview import midnight
from advisor.settings import SUITE, Settings
from advisor_api.demo.programme import Programme
from advisor_api.demo.show import Show
from advisor_api.http.errors import LOG
from advisor_data.bundled import bundled_points_together, bundled_solo_points
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


SPEED = 144
"""A day in ten minutes."""

GPUS = ("NVIDIA H200", "NVIDIA H100 80GB HBM3") * 2
"""Models on which pairs and sets were recorded."""

_DAYS_BACK = 6
"""No clock is ahead: after an hour it has come to the present, and goes on as fast as that."""

_HEAD_S = 8 * 3600.0
"""Played at once, so that there is something to see."""

_CHUNK_S, _TICK_S = 600.0, 0.25


class DemoPlayer:
    """Recorded launches on some GPUs, of which every moment is `SPEED` times as short."""

    def __init__(self, settings: Settings) -> None:
        self._begin = midnight(datetime.now().astimezone(), _DAYS_BACK)
        self._started_s = time.monotonic()
        jobs, _ = sound_jobs(settings.jobs_dir)
        names = [job.name for job in jobs]
        programmes = {model: _programme(model, settings, names) for model in set(GPUS)}
        root = settings.home / "launches"
        self._stages = [
            DemoGpu(number, root, self._begin, programmes[model])
            for number, model in enumerate(GPUS)
        ]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._play, daemon=True, name="demo")

    def now(self) -> datetime:
        """The moment that plays."""
        return min(stage.moment() for stage in self._stages)

    def cards(self, held: Collection[str]) -> list[tuple[Gpu, float | None]]:
        """The GPUs, and what those draw that no launch holds."""
        beds = [stage.testbed for stage in self._stages]
        return [
            (bed.gpu, None if bed.gpu.uuid in held else bed.source.read((POWER_GPU,))[POWER_GPU])
            for bed in beds
        ]

    def start(self) -> None:
        """Play until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and let go of all folders."""
        self._stop.set()
        self._thread.join()
        for stage in self._stages:
            stage.close()

    def _play(self) -> None:
        played_s = 0.0
        try:
            while not self._stop.is_set():
                played_s = min(played_s + _CHUNK_S, self._due_s())
                for stage in self._stages:
                    stage.advance(played_s, lambda: not self._stop.is_set())
                if played_s >= self._due_s():
                    self._stop.wait(_TICK_S)
        except Exception:  # noqa: BLE001 the service goes on, and the log says what happened
            LOG.exception("the demonstration ended")

    def _due_s(self) -> float:
        passed_s = time.monotonic() - self._started_s
        present_s = (datetime.now().astimezone() - self._begin).total_seconds()
        return min(_HEAD_S + SPEED * passed_s, present_s)


def _programme(model: str, settings: Settings, jobs: list[str]) -> Programme:
    solo = [point for point in bundled_solo_points() if point.gpu_model == model]
    together = [point for point in bundled_points_together() if point.gpu_model == model]
    return Programme(settings, solo, together, jobs)


@contextmanager
def playing(settings: Settings) -> Generator[DemoPlayer]:
    """Play until the end of the block."""
    player = DemoPlayer(settings)
    player.start()
    try:
        yield player
    finally:
        player.stop()


@contextmanager
def demo_settings(settings: Settings) -> Generator[Settings]:
    """Settings of a service that touches nothing of this user's, and leaves nothing behind."""
    home = Path(tempfile.gettempdir(), f"advisor-demo-{secrets.token_hex(8)}")
    # A signal that ends the service may come while the folder is made: `TemporaryDirectory` would
    # not know of it yet.
    try:
        home.mkdir(0o700)
        yield replace(
            settings,
            home=home,
            runtime_dir=home / "run",
            lock_dir=home / "locks",
            jobs_dir=SUITE / "jobs",
            database_url=None,
        )
    finally:
        shutil.rmtree(home, ignore_errors=True)
