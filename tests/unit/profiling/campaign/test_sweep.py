"""The solo sweep: order, resume, failures, and what is kept when something breaks."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from breakable_replay import BreakableProcess, BreakableTestbed, Fault
from hypothesis import given, strategies as st
from store_points import pair_point, point
from watching import Watching

from advisor.core.gpu import Gpu, Share
from advisor.core.job import Job, ProgressSettings
from advisor.core.records import Record, SoloPoint
from advisor.errors import AdvisorError, JobError, LimitNotProvenError, StoreError
from advisor.predict.profiles import counted_kernels
from advisor_data import Store, open_store
from advisor_profiling.campaign.campaign import (
    SHORT_KERNELS,
    SweepResult,
    plan,
    sweep,
    unfinished_run,
)
from advisor_profiling.window import rules_for, solo

POINTS = [point(share_percent=s, rate=s, power_w=100 + s, idle_power_w=70) for s in (20, 50, 100.0)]
SHARES = [Share(share) for share in (20, 50, 100)]
UNGATED = Job(name="gemm", command=("x",))
GATED = Job(name="gemm", command=("x",), progress=ProgressSettings(gate=True), memory_mib=100)


PROBED_S, HELD_S, KERNELS = 1e-4, 3e-5, 400.0
"""Seconds of a kernel of the probe; of one of a job, which has so many for a step."""

BESIDE = pair_point(
    share_1_percent=100,
    share_2_percent=100,
    mode="uncapped",
    job_1="gemm",
    job_2=SHORT_KERNELS.name,
    rate_1=1 / KERNELS / (PROBED_S + HELD_S),
    rate_2=1 / (PROBED_S + HELD_S),
    power_w=300,
)
PROBE = point(job=SHORT_KERNELS.name, share_percent=100.0, rate=1 / PROBED_S, power_w=280)


def full_after_one(store: Store) -> Store:

    def add(points: Iterable[Record], *, renew: bool = False) -> int:
        if store.solo_points():
            raise StoreError("no space left on device")
        return type(store).add(store, points, renew=renew)

    store.add = add
    return store


def bench(fault: Fault = lambda _process, _where: None) -> BreakableTestbed:
    """A GPU of 1000 MiB."""
    testbed = BreakableTestbed([*POINTS, PROBE], [BESIDE], fault=fault)
    testbed.gpu = dataclasses.replace(testbed.gpu, memory_mib=1000)
    return testbed


def fails_at(share: float, at: str, error: AdvisorError) -> Fault:
    return lambda process, where: error if (process.share.percent, where) == (share, at) else None


def run(
    testbed: BreakableTestbed,
    folder: Path,
    *,
    job: Job = UNGATED,
    is_full: bool = False,
    kept: Sequence[SoloPoint] = (),
    counted: Job | None = None,
) -> tuple[SweepResult, Watching]:
    told, done = Watching(), {point.share_percent for point in kept}
    targets = [solo(job, share) for share in SHARES if share.percent not in done]
    with open_store(None, folder) as store:
        if is_full:
            full_after_one(store)
        result = sweep(
            targets, "r9", testbed, store, told, rules_for(0.5), kept=kept, counted=counted
        )
    return result, told


def kept(folder: Path) -> list[float]:
    with open_store(None, folder) as store:
        return [p.share_percent for p in store.solo_points()]


def test_reporter_is_told_each_step(tmp_path: Path) -> None:
    result, told = run(bench(), tmp_path)
    first, *phases, last = told.phases
    assert (first, last) == ("measuring idle power", "measuring idle power again")
    assert sorted(phases) == ["1 process ready after 0 s"] * 3 + [
        f"starting gemm at {share} %, each ready within 180 s" for share in (100, 20, 50)
    ]
    assert [(done, total) for _, done, total, _ in told.points] == [(1, 3), (2, 3), (3, 3)]
    etas_s = [eta_s for *_, eta_s in told.points]
    assert etas_s[0] > etas_s[1] > etas_s[2] == 0
    assert etas_s[0] == pytest.approx(2 / 3 * result.duration_s, rel=0.3)
    assert (tuple(p for p, *_ in told.points), told.failures) == (result.points, [])


@pytest.mark.parametrize("where", ["ready", "check"])
def test_failure_that_stays_costs_its_share_only(tmp_path: Path, where: str) -> None:
    testbed = bench(fails_at(50, where, JobError("bad checkpoint")))
    result, told = run(testbed, tmp_path)
    assert sorted(kept(tmp_path)) == [20, 100]
    assert told.failures == list(result.failures)
    assert [(f.target, str(f.cause)) for f in result.failures] == [
        (solo(UNGATED, Share(50)), "bad checkpoint.")
    ]
    assert all(process.ended for process in testbed.processes)


def test_job_that_cannot_be_held_is_ended_and_its_point_stays(tmp_path: Path) -> None:
    """It must not run on next to the next one."""
    testbed = bench(fails_at(20, "hold", JobError("did not stop at its gate")))
    result, _ = run(testbed, tmp_path, job=GATED)
    assert (sorted(kept(tmp_path)), result.failures) == ([20, 50, 100], ())
    after = testbed.standing.index(2) if 2 in testbed.standing else 3
    assert testbed.standing == [3] * after + [2] * (3 - after)
    assert kept(tmp_path)[after - 1] == 20


def test_limit_that_is_not_in_force_stops_the_sweep(tmp_path: Path) -> None:
    """No other share is believed either, and no job is left."""
    testbed = bench(fails_at(50, "check_limit", LimitNotProvenError("not under its share")))
    with pytest.raises(LimitNotProvenError):
        run(testbed, tmp_path)
    assert 50 not in kept(tmp_path)
    assert all(process.ended for process in testbed.processes)


def test_full_disk_ends_the_sweep_with_its_jobs(tmp_path: Path) -> None:
    """Measuring what cannot be kept is a waste; points before stay."""
    testbed = bench()
    with pytest.raises(StoreError):
        run(testbed, tmp_path, is_full=True)
    assert len(kept(tmp_path)) == 1
    assert all(process.ended for process in testbed.processes)


@given(st.sets(st.integers(1, 100), min_size=1), st.integers(1, 3), st.text("abc0", min_size=1))
def test_plan_has_each_window_once_and_is_the_same_for_a_run(
    shares: set[int], repeats: int, name: str
) -> None:
    """A resumed run goes on in its own order, which no drift of the card can imitate."""
    targets = plan(GATED, map(Share, shares), repeats, name)
    assert Counter((t.specs[0].share.percent, t.repeat) for t in targets) == Counter(
        (share, repeat) for share in shares for repeat in range(repeats)
    )
    assert targets == plan(GATED, map(Share, shares), repeats, name)
    many = [Share(percent) for percent in range(1, 101)]
    assert plan(GATED, many, 1, name) != plan(GATED, many, 1, f"{name}1")


def count(
    testbed: BreakableTestbed, folder: Path, job: Job, kept: Sequence[SoloPoint] = ()
) -> tuple[SweepResult, Watching, Sequence[Record]]:
    """A sweep that counts kernels, and what is in the store after it."""
    result, told = run(testbed, folder, job=job, kept=kept, counted=job)
    with open_store(None, folder) as store:
        return result, told, [*store.solo_points(), *store.pair_points()]


@pytest.mark.parametrize(
    ("used_mib", "kept", "standing", "starts", "blocks_left"),
    [
        (100.0, 0, [1, 3, 3], 4, 2),
        (300.0, 0, [1, 2, 1], 5, 3),  # three at a quarter more do not fit
        (None, 0, [1, 1, 1], 5, 3),
        (100.0, 1, [2, 2], 3, 1),
    ],
)
def test_shares_stand_together_by_the_memory_of_an_earlier_window(
    tmp_path: Path, used_mib: float | None, kept: int, standing: list[int], starts: int,
    blocks_left: int,
) -> None:  # fmt: skip
    """Where the job file has none; the process on the whole GPU stands until the probe needs it."""
    points = [dataclasses.replace(point, memory_used_mib=used_mib) for point in POINTS]
    testbed = BreakableTestbed([*points, PROBE], [BESIDE])
    testbed.gpu, testbed.ready_after_s = dataclasses.replace(testbed.gpu, memory_mib=1000), 100.0
    job = dataclasses.replace(GATED, memory_mib=None)
    result, told, _ = count(testbed, tmp_path, job, points[:kept])
    assert {point.share_percent for point in result.points} == {20, 50, 100}
    assert (testbed.standing, len(testbed.processes)) == ([*standing, 2, 2, 2], starts)
    # Of each block left as long a start is expected as of the first.
    assert told.points[0][3] == pytest.approx(100 * blocks_left, rel=0.1)


@pytest.mark.parametrize("job", [GATED, UNGATED])
def test_kernels_are_counted_after_the_other_windows(tmp_path: Path, job: Job) -> None:
    result, told, stored = count(bench(), tmp_path, job)
    assert set(stored) == set(result.points)  # nothing of the probe, and the renewed point once
    assert [(done, total) for _, done, total, _ in told.points][-1] == (5, 5)
    assert all(isinstance(point, SoloPoint) for point, *_ in told.points[:3])
    whole, *others = sorted(result.points, key=lambda p: -p.share_percent)
    assert {point.kernels_per_unit for point in others} == {None}
    assert whole.kernels_per_unit == pytest.approx(KERNELS, rel=0.01)
    assert whole.kernel_hold_s == pytest.approx(HELD_S, rel=0.05)
    again, told, _ = count(bench(), tmp_path, job, result.points)
    assert (again.points, told.phases) == (result.points, [])


def test_a_job_that_waits_for_its_host_has_three_windows_on_the_whole_gpu(tmp_path: Path) -> None:
    """Two after the others, before and after the probe."""
    of_host: dict[str, Any] = {
        "sm_active_percent": 5.0, "job_cpu_percent": 100.0,
        "units_granted": 132, "units_total": 132,
    }  # fmt: skip
    slow = [dataclasses.replace(p, **of_host) for p in POINTS]
    testbed = BreakableTestbed(
        [*slow, *(dataclasses.replace(slow[-1], repeat=n) for n in (1, 2)), PROBE], [BESIDE]
    )
    result, told, _ = count(testbed, tmp_path, GATED)
    assert [(done, total) for _, done, total, _ in told.points][2:] == [
        (3, 7), (4, 7), (5, 7), (6, 7), (7, 7),
    ]  # fmt: skip
    assert [type(point).__name__ for point, *_ in told.points[3:]] == [
        "SoloPoint", "SoloPoint", "PairPoint", "SoloPoint",
    ]  # fmt: skip
    whole = [point for point in result.points if point.share_percent == 100]
    assert [point.repeat for point in whole] == [0, 1, 2]
    assert all(point.kernels_per_unit for point in whole)
    again, told, _ = count(testbed, tmp_path, GATED, result.points)
    assert (again.points, told.phases) == (result.points, [])


def test_only_the_probe_runs_where_a_profile_lacks_its_kernels(tmp_path: Path) -> None:
    before, _ = run(bench(), tmp_path, job=GATED)
    result, told, stored = count(bench(), tmp_path, GATED, before.points)
    assert [total for _, _, total, _ in told.points] == [2, 2]
    assert sum(point.kernels_per_unit is not None for point in result.points) == 1
    assert set(stored) == set(result.points)


@pytest.mark.parametrize(("mode", "why"), [("mps", "old GPU"), ("cu_mask", "that takes MPS")])
def test_a_probe_that_does_not_run_costs_no_point(tmp_path: Path, mode: str, why: str) -> None:
    def fault(process: BreakableProcess, where: str) -> BaseException | None:
        is_probe = process.job.name == SHORT_KERNELS.name
        return JobError("old GPU") if is_probe and where == "ready" else None

    testbed = bench(fault)
    testbed.mode = mode
    result, told, stored = count(testbed, tmp_path, GATED)
    assert (len(result.points), set(stored)) == (3, set(result.points))
    assert {point.kernels_per_unit for point in result.points} == {None}
    assert (result.failures, told.failures) == ((), [])
    assert told.phases.count(f"kernels per unit are not counted: {why}") == 1


def test_kernels_of_the_job_file_count_where_no_probe_runs(tmp_path: Path) -> None:
    """Also for a profile that is complete; a probe that ran knows better."""
    declared = dataclasses.replace(GATED, kernels_per_unit=250.0)
    assert declared.job_hash == GATED.job_hash
    busy = [dataclasses.replace(p, gpu_busy_percent=50.0) for p in POINTS]
    testbed = BreakableTestbed([*busy, PROBE], [BESIDE])
    testbed.mode = "cu_mask"
    before, *_ = count(testbed, tmp_path, GATED)
    result, told, stored = count(testbed, tmp_path, declared, before.points)
    assert told.phases[-1] == "kernels per unit are those of the job file: 250"
    assert set(stored) == set(result.points)
    kernels = counted_kernels(result.points)
    assert kernels
    assert (kernels.per_unit, kernels.source) == (250.0, "counted")
    assert kernels.hold_s == pytest.approx(0.5 / (250 * POINTS[-1].rate))
    result, *_ = count(bench(), tmp_path / "probed", declared)
    kernels = counted_kernels(result.points)
    assert kernels
    assert kernels.source == "probe"


H200 = Gpu(uuid="GPU-1", model="NVIDIA H200", driver="580")


def of_run(name: str, day: int, **fields: Any) -> SoloPoint:
    values: dict[str, Any] = {"job_hash": UNGATED.job_hash, "driver": "580", **fields}
    return point(run=name, started_at=f"2026-01-{day:02}T00:00:00Z", **values)


def test_newest_run_is_gone_on_with() -> None:
    old, first, last = of_run("a", 1), of_run("b", 2), of_run("b", 4)
    between = of_run("a", 3)
    assert unfinished_run([last, old, first, between], UNGATED, H200, "mps") == ("b", [last, first])


@pytest.mark.parametrize(
    "other",
    [{"job_hash": "0"}, {"job_hash": None}, {"gpu_uuid": "GPU-2"}, {"mode": "uncapped"},
     {"driver": "570"}],
)  # fmt: skip
def test_run_under_other_conditions_is_not_gone_on_with(other: dict[str, Any]) -> None:
    assert unfinished_run([of_run("a", 1, **other)], UNGATED, H200, "mps") is None
    mixed = [of_run("b", 2, **other), of_run("a", 1)]
    assert unfinished_run(mixed, UNGATED, H200, "mps") == ("a", [mixed[1]])
