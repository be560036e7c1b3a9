"""What a plan means on one GPU: splits, pairs, memory, and what earlier points decide."""

from dataclasses import replace
from typing import Any

import pytest
from flat_records import changed
from planned import H200, MI300X, job, jobs, pair_point, shares_of, solo_point, units_of

from advisor.core.gpu import Gpu, Share
from advisor.core.split import NINE, TIME_SLICED, UNCAPPED, Split
from advisor.errors import InputError
from advisor_profiling.campaign.plan import Plan, PlanEntry, all_pairs, expand
from advisor_profiling.campaign.splits import AroundBest, UnitSplit
from advisor_profiling.window.points import pair

JOBS = jobs(["bert", "fft", "gemm", "triad"])


def plan(**entry: Any) -> Plan:
    fields: dict[str, Any] = {"splits": NINE, **entry}
    return Plan("run", (PlanEntry(**fields),))


def test_all_pairs_of_a_group() -> None:
    """Four jobs are ten pairs: nine splits of six, and five of each job next to itself."""
    work = expand(plan(among=tuple(JOBS)), H200, JOBS, [], [])
    assert (len(work.mps), work.time_sliced, work.skipped) == (6 * 9 + 4 * 5, (), ())
    assert {t.jobs for t in work.mps} == set(all_pairs(JOBS))
    unread = Gpu(uuid="GPU-1", model="NVIDIA H200")
    others = expand(plan(among="all", selves=False), unread, JOBS, [], [])
    assert {t.jobs for t in others.mps} == set(all_pairs(JOBS, selves=False))
    drawn = {expand(Plan(name, plan(among="all", sample=4, splits=(UNCAPPED,)).entries),
                    H200, JOBS, [], []).mps for name in "aabcd"}  # fmt: skip
    assert (len(drawn) > 1, {len(found) for found in drawn}) == (True, {4})


def test_shares_go_to_the_jobs_in_the_order_written() -> None:
    """Uncapped is measured under MPS, time-sliced without it, though the shares are the same."""
    splits = (Split((70.0, 20.0)), UNCAPPED, TIME_SLICED)
    work = expand(plan(pairs=(("triad", "bert"),), splits=splits), H200, JOBS, [], [])
    whole = pair(JOBS["bert"], Share(100), JOBS["triad"], Share(100))
    assert work.mps == (pair(JOBS["triad"], Share(70), JOBS["bert"], Share(20)), whole)
    assert work.time_sliced == (whole,)
    assert [str(spec) for spec in work.mps[0].specs] == ["bert at 20 %", "triad at 70 %"]


def test_same_window_of_two_entries_is_measured_once() -> None:
    """Also of a pair that is named the other way round; each repeat is a window of its own."""
    entries = (
        PlanEntry(among=tuple(JOBS), splits=NINE),
        PlanEntry(pairs=(("triad", "bert"), ("bert", "triad")), splits=NINE, repeats=2),
    )
    work = expand(Plan("run", entries), H200, JOBS, [], [])
    assert len(work.mps) == len(set(work.mps)) == 6 * 9 + 4 * 5 + 9
    assert sum(t.repeat for t in work.mps) == 9


def test_points_of_the_own_run_change_nothing() -> None:
    """A plan means the same when it goes on as when it began, whatever it has measured so far."""
    entries = (
        PlanEntry(among="all", sample=5, splits=NINE),
        PlanEntry(pairs=(("bert", "triad"),), splits=(AroundBest(4),)),
    )
    whole = Plan("run", entries)
    before = expand(whole, H200, JOBS, [], [])
    solo = [
        solo_point(name, run="run", sm_active_percent=9.0, dram_active_percent=9.0,
                   memory_used_mib=200_000.0)
        for name in JOBS
    ]  # fmt: skip
    assert expand(whole, H200, JOBS, [pair_point("bert", "triad", 66, run="run")], solo) == before


def test_kinds_of_earlier_profiles_guide_a_sample() -> None:
    members = jobs(f"j{number}" for number in range(8))
    solo = [
        solo_point(name, sm_active_percent=99.0, dram_active_percent=90.0 * (name < "j4"))
        for name in members
    ]
    entry = plan(among="all", sample=20, selves=False, splits=(UNCAPPED,))
    work = expand(entry, H200, members, [], solo)
    for name in members:
        others = {other for t in work.mps if name in t.jobs for other in t.jobs if other != name}
        assert {other < "j4" for other in others} == {True, False}


def test_unknown_job() -> None:
    with pytest.raises(InputError, match=r"no job 'trida' among 4\. the nearest is triad"):
        expand(plan(pairs=(("bert", "trida"),)), H200, JOBS, [], [])


def test_exact_units() -> None:
    """Counts of units become the percentages that grant exactly them; on AMD they are CUs."""
    entry = plan(pairs=(("bert", "triad"),), splits=(UnitSplit(38, 94),))
    assert units_of(expand(entry, H200, JOBS, [], [])) == [(38, 94)]
    amd = plan(pairs=(("bert", "triad"),), splits=(UnitSplit(96, 208),))
    found = shares_of(expand(amd, MI300X, JOBS, [], []))
    assert found == [pytest.approx((100 * 96 / 304, 100 * 208 / 304))]


@pytest.mark.parametrize(
    ("split", "what"),
    [
        ((66, 64), "expected counts that sum to the 132 units of NVIDIA H200, got 66+64 units"),
        ((66, 64), "66+66 units"),
        ((200, 12), r"\(212\)"),
        ((65, 67), "65 of 132 SMs cannot be granted"),
        ((4, 128), "ask for 8"),
        ((0, 132), "0 of 132 SMs cannot be granted"),
    ],
)
def test_units_that_the_gpu_has_not(split: tuple[int, int], what: str) -> None:
    entry = plan(
        pairs=(("bert", "triad"),), splits=(UnitSplit(*split, where="p.yaml:3:9: splits"),)
    )
    with pytest.raises(InputError, match=rf"^p\.yaml:3:9: splits: .*{what.replace('+', '[+]')}"):
        expand(entry, H200, JOBS, [], [])


def test_pair_that_does_not_fit_into_memory() -> None:
    members = jobs(["a", "b"], memory_mib=1000)
    solo = [
        solo_point("a", share_percent=10.0, memory_used_mib=1.0),
        solo_point("a", memory_used_mib=130_000.0),
    ]
    work = expand(plan(among="all", splits=(UNCAPPED, TIME_SLICED)), H200, members, [], solo)
    (skipped,) = work.skipped
    assert skipped.pair == ("a", "a")
    assert skipped.reason.startswith("a needs 130000 MiB and a 130000 MiB, together more than")
    assert [{t.jobs for t in some} for some in (work.mps, work.time_sliced)] == [
        {("a", "b"), ("b", "b")}
    ] * 2


@pytest.mark.parametrize(
    ("a_mib", "b_mib", "gpu_mib", "skipped"),
    [
        (600, 350, 1000, 0),
        (600, 351, 1000, 1),
        (None, 9999, 1000, 0),
        (600, None, 1000, 0),
        (600, 9999, None, 0),
    ],
)
def test_memory_of_job_files(
    a_mib: int | None, b_mib: int | None, gpu_mib: int | None, skipped: int
) -> None:
    """Without a profile the job file tells; what nobody knows is no reason to leave a pair out."""
    members = {"a": job("a", memory_mib=a_mib), "b": job("b", memory_mib=b_mib)}
    gpu = Gpu(uuid="GPU-1", model="NVIDIA H200", memory_mib=gpu_mib)
    work = expand(plan(pairs=(("a", "b"),)), gpu, members, [], [])
    assert len(work.skipped) == skipped
    assert len(work.mps) == 9 * (1 - skipped)


SOLO = [solo_point("bert", 100.0), solo_point("triad", 1000.0)]
AROUND = plan(pairs=(("bert", "triad"),), splits=(AroundBest(4),))
MEASURED = [
    pair_point("bert", "triad", 26, rate_1=20.0, rate_2=900.0),
    pair_point("bert", "triad", 52, rate_1=50.0, rate_2=800.0),
    pair_point("bert", "triad", 78, rate_1=60.0, rate_2=400.0),
]


def test_around_the_best_split() -> None:
    """Every second SM to either side of the split with the most relative speed per watt."""
    around = [(n, 132 - n) for n in (48, 50, 52, 54, 56)]
    turned = plan(pairs=(("triad", "bert"),), splits=(AroundBest(4),))
    for entry in (AROUND, turned):
        assert sorted(units_of(expand(entry, H200, JOBS, MEASURED, SOLO))) == around
    frugal = pair_point("bert", "triad", 12, rate_1=50.0, rate_2=800.0, power_w=400.0)
    assert (12, 120) in units_of(expand(AROUND, H200, JOBS, [*MEASURED, frugal], SOLO))


@pytest.mark.parametrize(
    "fields",
    [
        {"flags": ("not-settled",)},
        {"gpu_model": "NVIDIA H100"},
        {"run": "run"},
        {"mode": "uncapped"},
        {"units_2": 104},
        {"units_1": None},
        {"units_2": None},
        {"rate_1": None},
        {"rate_2": None},
        {"power_w": None},
    ],
)
def test_points_that_name_no_best_split(fields: dict[str, Any]) -> None:
    """Doubtful, unlimited, over-subscribed and incomplete points of this run or another model."""
    good = pair_point("bert", "triad", 104, rate_1=100.0, rate_2=1000.0)
    plain = expand(AROUND, H200, JOBS, MEASURED, SOLO)
    assert expand(AROUND, H200, JOBS, [*MEASURED, good], SOLO) != plain
    assert expand(AROUND, H200, JOBS, [*MEASURED, changed(good, **fields)], SOLO) == plain


@pytest.mark.parametrize(
    ("earlier", "solo", "reason"),
    [
        ([], SOLO, "no other run has measured a split of the pair on NVIDIA H200"),
        (MEASURED, SOLO[:1], "triad has no solo point at 100 % on NVIDIA H200"),
        (MEASURED, [], "bert has no solo point at 100 %"),
        (MEASURED, [replace(SOLO[0], share_percent=50.0), SOLO[1]], "bert has no solo point"),
        (MEASURED, [SOLO[0], replace(SOLO[1], gpu_model="NVIDIA H100")], "triad has no solo point"),
    ],
)
def test_around_best_without_earlier_points(
    earlier: list[Any], solo: list[Any], reason: str
) -> None:
    entry = plan(pairs=(("bert", "triad"),), splits=(AroundBest(4), UNCAPPED))
    work = expand(entry, H200, JOBS, earlier, solo)
    (skipped,) = work.skipped
    assert (len(work.mps), skipped.pair) == (1, ("bert", "triad"))
    assert skipped.reason.startswith(f"around-best 4: {reason}")
