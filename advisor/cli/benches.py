"""What the measuring commands share: the bench, live or replayed, its store, and how they end."""

import signal
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from types import FrameType

from rich.console import Console

from advisor.errors import InputError, StoreError
from advisor.records import Point
from advisor.settings import Settings
from advisor_data import Store, open_store
from advisor_data.bundled import bundled_pair_points, bundled_solo_points
from advisor_profiling.bench import Bench
from advisor_profiling.clock import LiveClock
from advisor_profiling.live import Mode, SourceName, live_bench
from advisor_profiling.replay import ReplayBench
from advisor_profiling.sweep import new_run

REPLAY = "replay"


@contextmanager
def open_bench(
    settings: Settings, gpu: str, source: SourceName | None, mode: Mode | None, run: str
) -> Generator[Bench]:
    """A live GPU, or the replay of recorded solo points."""
    if gpu == REPLAY:
        yield ReplayBench(bundled_solo_points())
        return
    with live_bench(settings, gpu, source, mode, run) as bench:
        yield bench


@contextmanager
def open_pair_bench(
    settings: Settings,
    gpu: str,
    source: SourceName | None,
    mode: Mode | None,
    run: str,
    noise: bool,
) -> Generator[Bench]:
    """A live GPU, or the replay of recorded solo and pair points."""
    if gpu == REPLAY:
        seed = run if noise else None
        yield ReplayBench(bundled_solo_points(), bundled_pair_points(), mode, seed)
        return
    # A run goes on in several processes, one after the other and on several GPUs; each has logs
    # of its own.
    logs = f"{run}/{new_run(LiveClock().utc())}"
    with live_bench(settings, gpu, source, mode, logs) as bench:
        yield bench


@contextmanager
def open_points(settings: Settings, gpu: str) -> Generator[Store]:
    """The user's store; replayed points are no measurements and go to a folder that is dropped."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"files:{folder}" if gpu == REPLAY else settings.database_url
        with open_store(url, settings.home) as store:
            yield store


def bundled_points() -> list[Point]:
    """The measurements that come with the package; none where it was installed without them."""
    points: list[Point] = []
    for read in (bundled_solo_points, bundled_pair_points):
        with suppress(StoreError, InputError):
            points += read()
    return points


def say_replay(console: Console, model: str, noise: bool = False) -> None:
    """Nobody takes a replay for a measurement."""
    how = (
        "recorded means come back with noise of the size of their standard errors"
        if noise
        else "recorded means come back without the noise that they had"
    )
    console.print(f"REPLAY of recorded points of {model}: no GPU is used; {how}.")


@contextmanager
def terminated_like_interrupt() -> Generator[None]:
    """SIGTERM, as batch systems send it, stops a run as cleanly as Ctrl-C."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
