"""Plays a day of recorded launches in ten minutes, into the home that a service looks after."""

import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Collection, Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from advisor.core.gpu import Gpu
from advisor.core.telemetry import POWER_GPU
from advisor.formats.job_file import sound_jobs
from advisor.launch.records.overview import midnight
from advisor.settings import SUITE, Settings
from advisor_api.demo.programme import Programme
from advisor_api.demo.stage import DemoGpu
from advisor_api.http.errors import LOG
from advisor_data.files.bundled import bundled_points_together, bundled_solo_points

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
