"""The engine's memory: what is kept, for how long, and what ends it; with a counted store."""

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from advisor.core.records import Observation, PairPoint, SoloPoint
from advisor.errors import BusyError, InputError, NoSplitError, StoreError
from advisor.predict.corrections import of_few
from advisor.runtime.processes import descendants
from advisor.settings import read_settings
from advisor.wire.answers import DriftedJob
from advisor.wire.requests import PlacementRequest, QueuedJobs, RecommendationRequest
from advisor_advice.conditions import Conditions
from advisor_api import engine as engine_module, worker_process
from advisor_api.engine import Engine
from advisor_api.worker_process import ProcessEndedError, WorkerProcesses
from advisor_data import open_store
from advisor_data.bundled import GPU_MODEL, bundled_solo_points
from advisor_models.model_predictor import ModelPredictor
from advisor_models.registry import Registry

PAIR = RecommendationRequest.of("fft", "gemm")


class Source:
    """A store and a count of changes that note how often they are asked, and may fail."""

    def __init__(self, folder: Path) -> None:
        self.store: Any = open_store(f"sqlite:///{folder}/points.db", folder)
        self.count, self.looks, self.loads, self.pair_loads = 0, 0, 0, 0
        self.fails = False
        self.gate: threading.Event | None = None

    def change_count(self) -> int:
        self.looks += 1
        if self.gate:
            self.gate.wait(10)
        if self.fails:
            raise StoreError("gone")
        return self.count

    def profile_names(self, after: str = "", limit: int = 1000) -> list[str]:
        self.loads += 1
        return self.store.profile_names(after, limit)

    def solo_points(self, **wanted: str | None) -> list[SoloPoint]:
        self.loads += 1
        return self.store.solo_points(**wanted)

    def pair_points(self, **wanted: Any) -> list[PairPoint]:
        self.pair_loads += 1
        return self.store.pair_points(**wanted)

    def together(self) -> frozenset[tuple[str, ...]]:
        return frozenset({PAIR.names})

    def observations(self, **wanted: Any) -> list[Observation]:
        return self.store.observations(**wanted)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    with (made := Source(tmp_path)).store:
        yield made


@pytest.fixture
def engine(source: Source, tmp_path: Path) -> Engine:
    settings = read_settings({"ADVISOR_HOME": str(tmp_path), "ADVISOR_JOBS": str(tmp_path)})
    return Engine(settings, source, Registry(tmp_path / "models"), source.change_count)  # pyright: ignore[reportArgumentType]


@pytest.mark.anyio
@pytest.mark.slow
async def test_many_at_once_cost_one_look_and_one_load(engine: Engine, source: Source) -> None:
    """A crowd that asks for the same jobs is no crowd at the database."""
    assert len(set(await asyncio.gather(*(engine.recommend(PAIR) for _ in range(50))))) == 1
    assert (source.looks, source.loads, source.pair_loads) == (1, 2, 1)


@pytest.mark.anyio
async def test_within_a_second_nothing_is_looked_at(
    engine: Engine, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then an equal request costs a look in memory; after it one look, and no load."""
    now = [100.0]
    monkeypatch.setattr(engine_module.time, "monotonic", lambda: now[0])
    await engine.recommend(PAIR)
    now[0] += engine_module.FRESH_S - 0.01
    await engine.recommend(PAIR)
    assert source.looks == 1
    now[0] += 0.02
    await engine.recommend(PAIR)
    assert (source.looks, source.loads) == (2, 2)
    assert (engine.hits, engine.misses) == (2, 1)


@pytest.mark.anyio
async def test_nothing_is_kept_of_a_model_that_was_replaced(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fewer jobs do is kept with the model that said it."""
    of_few.cache_clear()
    now = [100.0]
    monkeypatch.setattr(engine_module.time, "monotonic", lambda: now[0])
    await engine.recommend(RecommendationRequest.of("bert-serve-30", "bert-serve-30", "triad"))
    assert of_few.cache_info().currsize
    monkeypatch.setattr(Registry, "stamp", Mock(return_value=(1, 2, 3)))
    now[0] += 2 * engine_module.FRESH_S
    await engine.recommend(PAIR)
    assert not of_few.cache_info().currsize


@pytest.mark.anyio
async def test_write_of_this_process_counts_although_a_look_is_under_way(
    engine: Engine, source: Source
) -> None:
    """A look that began before the write says nothing of it, even when it ends after it."""
    gate = source.gate = threading.Event()

    first = asyncio.create_task(engine.recommend(PAIR))
    while not source.looks:
        await asyncio.sleep(0.01)
    source.count += 1
    engine.present.changed()
    gate.set()
    await first
    assert source.looks == 2


@pytest.mark.anyio
async def test_store_that_is_gone_is_an_error_and_back_an_answer(
    engine: Engine, source: Source
) -> None:
    """Nobody gets an answer that may be stale; when the store is back, so are the answers."""
    await engine.recommend(PAIR)
    source.fails = True
    engine.present.changed()
    found = await asyncio.gather(
        *(engine.recommend(PAIR) for _ in range(20)), return_exceptions=True
    )
    assert all(isinstance(error, StoreError) for error in found)
    assert source.looks == 2
    source.fails = False
    await engine.recommend(PAIR)


@pytest.mark.anyio
async def test_other_limits_of_known_jobs_are_predicted_from_what_is_kept(
    engine: Engine, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until a profile, the model or what launches say changes; the answers differ."""
    asked: list[int] = []
    values = ModelPredictor.values

    def counted(model: ModelPredictor, *args: Any) -> Any:
        asked.append(len(args))
        return values(model, *args)

    monkeypatch.setattr(ModelPredictor, "values", counted)
    speeds = [RecommendationRequest.of("fft", "gemm", min_speed=m) for m in (0.2, 0.3, 0.35)]
    assert len({await engine.recommend(one) for one in speeds}) == 3
    assert len(asked) == 1
    source.count += 1
    engine.present.changed()
    await engine.recommend(speeds[0])
    assert len(asked) == 2


@pytest.mark.anyio
async def test_a_write_ends_only_what_may_depend_on_it(
    engine: Engine, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks of counts are read again when they change only."""
    read, checked_counts = list[str](), engine_module.checked_counts

    def counted(home: Path, gpu_model: str, total: int | None) -> Any:
        read.append(gpu_model)
        return checked_counts(home, gpu_model, total)

    monkeypatch.setattr(engine_module, "checked_counts", counted)
    for _ in range(2):
        source.count += 1
        engine.present.changed()
        await engine.recommend(PAIR)
    assert len(read) == 1


@pytest.mark.anyio
async def test_unknown_jobs_are_not_looked_for_again_and_again(
    engine: Engine, source: Source
) -> None:
    """Asking for what is not there is no way to keep the database busy."""
    for _ in range(5):
        with pytest.raises(InputError, match="similar names: gemm"):
            await engine.recommend(RecommendationRequest.of("gemn", "fft"))
    # Two jobs, and once the names for the hint.
    assert source.loads == 3


@pytest.mark.anyio
@pytest.mark.slow
async def test_a_placement_takes_in_what_launches_say(engine: Engine, tmp_path: Path) -> None:
    """All of it reaches the process that works it out, as it reaches advice."""
    card = next(p.gpu_uuid for p in bundled_solo_points() if p.gpu_model == GPU_MODEL)
    drift = DriftedJob(
        job="fft", gpu_model=GPU_MODEL, gpu_uuid=card, quantity="rate", ratio=0.8,
        since="2026-11-01T00:00:00+00:00", observations=5,
    )  # fmt: skip
    engine.present.observed(Conditions(drifts=(drift,)))
    queue = (QueuedJobs(job="fft"), QueuedJobs(job="gemm"))
    asked = PlacementRequest(jobs=queue, gpus=1, gpu_model=GPU_MODEL, gpu_uuid=card)
    told = json.loads(await engine.place(asked))
    engine.close()
    assert told["queued"] == 2
    assert any(drift.text in warning for warning in told["warnings"])


@pytest.mark.anyio
async def test_placements_wait_in_a_short_line(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many at once are refused, at most two are worked out at a time."""
    running: list[int] = [0, 0]

    def slow(*_: object) -> tuple[bytes, bool]:
        running[0] += 1
        running[1] = max(running)
        threading.Event().wait(0.02)
        running[0] -= 1
        return b"{}", False

    monkeypatch.setattr("advisor_api.worker_process._WorkerProcess.ask", slow)
    wanted = PlacementRequest(jobs=(QueuedJobs(job="fft"),), gpus=1)
    room = engine_module.PLACEMENTS_AT_ONCE + engine_module.PLACEMENTS_WAITING

    places = (engine.place(wanted) for _ in range(room + 3))
    found = await asyncio.gather(*places, return_exceptions=True)
    assert sum(isinstance(error, BusyError) for error in found) == 3
    assert running[1] <= engine_module.PLACEMENTS_AT_ONCE
    engine.close()


# Work in processes of their own: what it gives, and what is left when one is killed or closed.


@pytest.fixture
def own(tmp_path: Path) -> Iterator[WorkerProcesses]:
    # Pickled functions are found by their module, as those of the package are.
    here = {"ADVISOR_HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).parent)}
    processes = WorkerProcesses(read_settings({**os.environ, **here}), 2)
    yield processes
    processes.close()


def pid_there() -> bytes:
    return str(os.getpid()).encode()


def niceness_there() -> bytes:
    return str(os.getpriority(os.PRIO_PROCESS, 0)).encode()


def slow(seconds: float) -> bytes:
    time.sleep(seconds)
    return b"done"


def large(mib: int) -> bytes:
    return str(len(b"x" * (mib * 2**20))).encode()  # zeros would take none


def refused() -> bytes:
    raise NoSplitError("nothing fits", why="it is too much", fix="ask for less")


def broken() -> bytes:
    raise ZeroDivisionError("in here")


@pytest.mark.anyio
@pytest.mark.slow
async def test_answer_is_that_of_a_process_that_gives_way(own: WorkerProcesses) -> None:
    """It is another process, the same one each time, and takes the core after the service."""
    first, second = [int(await own.work(pid_there)) for _ in range(2)]
    assert first == second != os.getpid()
    assert int(await own.work(niceness_there)) > min(os.getpriority(os.PRIO_PROCESS, 0), 18)


@pytest.mark.anyio
@pytest.mark.slow
async def test_memory_of_the_service_does_not_count(own: WorkerProcesses) -> None:
    assert large(worker_process.MOST_KIB // 1024 + 16)
    assert await own.work(pid_there) == await own.work(pid_there)


@pytest.mark.anyio
@pytest.mark.slow
async def test_errors_arrive_whole(own: WorkerProcesses) -> None:
    """What, why and what to do next, and of a fault of our own where it was."""
    with pytest.raises(NoSplitError) as told:
        await own.work(refused)
    assert (told.value.what, told.value.fix) == ("nothing fits", "ask for less")
    assert str(told.value) == "nothing fits. it is too much. ask for less."
    with pytest.raises(ZeroDivisionError) as fault:
        await own.work(broken)
    assert "in broken" in fault.value.__notes__[0]


@pytest.mark.anyio
@pytest.mark.slow
async def test_a_killed_process_is_told_and_replaced(own: WorkerProcesses) -> None:
    """In the middle of work or after it: one request fails at most, and the next one does not."""
    pid = int(await own.work(pid_there))
    asked = asyncio.create_task(own.work(slow, 30.0))
    await asyncio.sleep(0.2)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ProcessEndedError, match="ask again"):
        await asked
    other = int(await own.work(pid_there))
    assert other != pid
    os.kill(other, signal.SIGKILL)
    os.waitid(os.P_PID, other, os.WEXITED | os.WNOWAIT)
    assert int(await own.work(pid_there)) not in (pid, other)


@pytest.mark.anyio
@pytest.mark.slow
async def test_at_most_so_many_work_at_once(own: WorkerProcesses) -> None:
    pids = {await one for one in [own.work(pid_there) for _ in range(6)]}
    assert len(pids) == 1
    assert (await asyncio.gather(*(own.work(slow, 0.2) for _ in range(5)))) == [b"done"] * 5
    assert len(descendants(os.getpid())) >= 2
    pids = set(await asyncio.gather(*(own.work(pid_there) for _ in range(9))))
    assert len(pids) <= 2


@pytest.mark.anyio
@pytest.mark.slow
async def test_a_process_that_has_grown_is_replaced(
    own: WorkerProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a queue of many jobs does not keep its memory for good."""
    pid = int(await own.work(pid_there))
    size = worker_process.MOST_KIB // 1024 + 16
    assert await own.work(large, size) == str(size * 2**20).encode()
    assert not _runs(pid)
    assert int(await own.work(pid_there)) != pid


@pytest.mark.anyio
@pytest.mark.slow
async def test_closing_ends_all_and_whoever_waits(own: WorkerProcesses) -> None:
    """Nothing lives on, although something was worked out and something waited for its turn."""
    pid = int(await own.work(pid_there))
    waiting = [asyncio.create_task(own.work(slow, 30.0)) for _ in range(3)]
    await asyncio.sleep(0.2)
    await asyncio.to_thread(own.close)
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(e, ProcessEndedError | asyncio.CancelledError) for e in found)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
