"""What a plan means on one GPU: splits, pairs, memory, and what earlier points decide."""

import itertools
import json
import math
import random
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st
from planned import H200, MI300X, job, jobs, shares_of, solo_point, units_of, windows
from unsafe_counts import checked_132

from advisor.core.gpu import MEMORY_PART, NINE, TIME_SLICED, UNCAPPED, Gpu, Share, Split
from advisor.core.job import ResultsSettings
from advisor.errors import InputError, UnsafeCountError
from advisor.runtime.backend import CuMaskBackend
from advisor_data.bundled import bundled_solo_points
from advisor_profiling.campaign import plan as safe_plan
from advisor_profiling.campaign.campaign import Block, cut, estimate_s, remaining, shard
from advisor_profiling.campaign.plan import (
    BoundBy,
    HostCounts,
    Member,
    PairNames,
    Plan,
    PlanEntry,
    PlannedWindows,
    UnitSplit,
    all_pairs,
    check_requested_shares,
    check_safe_count,
    expand,
    kind_of,
    kinds_of,
    load_plan,
    plan_from_options,
    read_set,
    read_split,
    safety_of,
    sample,
    to_yaml,
    write_splits,
)
from advisor_profiling.window import ProcessSpec, Target, WindowRules, pair, rules_for, solo
from advisor_training.rows import HIGH_PERCENT, job_classes

JOBS = jobs(["bert", "fft", "gemm", "triad"])


def plan(**entry: Any) -> Plan:
    fields: dict[str, Any] = {"splits": NINE, **entry}
    return Plan("run", (PlanEntry(**fields),))


def test_all_pairs_of_a_group() -> None:
    """Four jobs are ten pairs: nine splits of six, and five of each job next to itself."""
    work = expand(plan(among=tuple(JOBS)), H200, JOBS, [])
    assert (len(work.mps), work.time_sliced, work.skipped) == (6 * 9 + 4 * 5, (), ())
    assert {t.jobs for t in work.mps} == set(all_pairs(JOBS))
    unread = Gpu(uuid="GPU-1", model="NVIDIA H200")
    others = expand(plan(among="all", selves=False), unread, JOBS, [])
    assert {t.jobs for t in others.mps} == set(all_pairs(JOBS, selves=False))
    drawn = {expand(Plan(name, plan(among="all", sample=4, splits=(UNCAPPED,)).entries),
                    H200, JOBS, []).mps for name in "aabcd"}  # fmt: skip
    assert (len(drawn) > 1, {len(found) for found in drawn}) == (True, {4})


def test_shares_go_to_the_jobs_in_the_order_written() -> None:
    """Uncapped is measured under MPS, time-sliced without it, though the shares are the same."""
    splits = (Split((70.0, 20.0)), UNCAPPED, TIME_SLICED)
    work = expand(plan(pairs=(("triad", "bert"),), splits=splits), H200, JOBS, [])
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
    work = expand(Plan("run", entries), H200, JOBS, [])
    assert len(work.mps) == len(set(work.mps)) == 6 * 9 + 4 * 5 + 9
    assert sum(t.repeat for t in work.mps) == 9


def test_points_of_the_own_run_change_nothing() -> None:
    """A plan means the same when it goes on as when it began, whatever it has measured so far."""
    whole = plan(among="all", sample=5)
    before = expand(whole, H200, JOBS, [])
    solo = [
        solo_point(name, run="run", sm_active_percent=9.0, dram_active_percent=9.0,
                   memory_used_mib=200_000.0)
        for name in JOBS
    ]  # fmt: skip
    assert expand(whole, H200, JOBS, solo) == before


def test_kinds_of_earlier_profiles_guide_a_sample() -> None:
    members = jobs(f"j{number}" for number in range(8))
    solo = [
        solo_point(name, sm_active_percent=99.0, dram_active_percent=90.0 * (name < "j4"))
        for name in members
    ]
    entry = plan(among="all", sample=20, selves=False, splits=(UNCAPPED,))
    work = expand(entry, H200, members, solo)
    for name in members:
        others = {other for t in work.mps if name in t.jobs for other in t.jobs if other != name}
        assert {other < "j4" for other in others} == {True, False}


def test_unknown_job() -> None:
    with pytest.raises(InputError, match=r"no job 'trida' among 4\. the nearest is triad"):
        expand(plan(pairs=(("bert", "trida"),)), H200, JOBS, [])


def test_exact_units() -> None:
    """Counts of units become the percentages that grant exactly them; on AMD they are CUs."""
    entry = plan(pairs=(("bert", "triad"),), splits=(UnitSplit(38, 94),))
    assert units_of(expand(entry, H200, JOBS, [])) == [(38, 94)]
    amd = plan(pairs=(("bert", "triad"),), splits=(UnitSplit(96, 208),))
    found = shares_of(expand(amd, MI300X, JOBS, []))
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
        expand(entry, H200, JOBS, [])


def test_pair_that_does_not_fit_into_memory() -> None:
    members = jobs(["a", "b"], memory_mib=1000)
    solo = [
        solo_point("a", share_percent=10.0, memory_used_mib=1.0),
        solo_point("a", memory_used_mib=130_000.0),
    ]
    work = expand(plan(among="all", splits=(UNCAPPED, TIME_SLICED)), H200, members, solo)
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
    work = expand(plan(pairs=(("a", "b"),)), gpu, members, [])
    assert (len(work.skipped), len(work.mps)) == (skipped, 9 * (1 - skipped))


BOTH = jobs(["bert", "triad"])
PAIR = (("bert", "triad"),)
KNOWN = checked_132()
HAND = Split((70.0, 30.0))


def work_of(*splits: Any, counts: HostCounts = KNOWN, gpu: Gpu = H200) -> PlannedWindows:
    solo = [solo_point(name) for name in BOTH]
    return expand(Plan("run", (PlanEntry(splits=splits, pairs=PAIR),)), gpu, BOTH, solo, counts)


def test_nine_are_moved_and_that_is_said_once() -> None:
    found = work_of(*NINE, UNCAPPED, TIME_SLICED)
    assert units_of(found) == [
        (12, 118), (14, 118), (34, 70), (62, 70), (66, 66), (70, 62), (70, 34), (118, 14),
        (118, 12), (132, 132),
    ]  # fmt: skip
    assert len(found.time_sliced) == 1
    (note,) = found.notes
    assert note.startswith("not used: 26, 38, 52, 78, 92 and 104 of 132 SMs")


@pytest.mark.parametrize("asked", [HAND, UnitSplit(92, 40), Split((70.0, 70.0))])
def test_a_split_asked_for_by_hand_is_refused_unless_that_is_allowed(asked: Any) -> None:
    """One of the nine is asked for by hand where not all nine are."""
    with pytest.raises(UnsafeCountError, match="92"):
        work_of(asked)
    found = work_of(asked, counts="any")
    assert units_of(found)[0][0] == 92
    assert not found.notes


def test_jobs_that_report_results_are_judged_by_these(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its points says whether it is right; where only one job does, the other counts."""
    reporting = {name: replace(job, results=ResultsSettings()) for name, job in BOTH.items()}
    monkeypatch.setitem(BOTH, "bert", reporting["bert"])
    with pytest.raises(UnsafeCountError, match="30 % is 38 of"):
        work_of(HAND)
    monkeypatch.setitem(BOTH, "triad", reporting["triad"])
    assert units_of(work_of(HAND)) == [(92, 38)]
    check_requested_shares([Share(70)], BOTH["bert"], safety_of("bert", H200, [], KNOWN))


def test_without_a_check_and_on_amd_nothing_is_moved() -> None:
    plain = work_of(*NINE, HAND, counts=None)
    assert plain.mps == work_of(*NINE, HAND, counts="any").mps
    assert len(plain.mps) == 9
    assert shares_of(work_of(*NINE, counts=KNOWN, gpu=MI300X)) == shares_of(plain)


@pytest.mark.parametrize("name", ["triad", "bert"])
def test_on_amd_the_masks_of_a_window_do_not_overlap(name: str) -> None:
    """Not at 50/50 either, nor where two alike run next to each other."""
    whole = Plan("run", (PlanEntry(splits=NINE, pairs=(("bert", name),)),))
    for target in expand(whole, MI300X, BOTH, [solo_point(n) for n in BOTH], KNOWN).mps:
        environments = (CuMaskBackend(MI300X).environment(r.share) for r in target.specs)
        a, b = (int(found["ROC_GLOBAL_CU_MASK"], 16) for found in environments)
        assert (a & b, a | b) == (0, (1 << 304) - 1)


def test_one_worker_gets_no_unsafe_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Unless that is allowed; the whole GPU is no count."""
    monkeypatch.setattr(safe_plan, "checked_counts", lambda *_: checked_132())  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    check_safe_count(66, H200, tmp_path)
    check_safe_count(None, H200, tmp_path)
    check_safe_count(92, H200, tmp_path, allow_unsafe=True)
    with pytest.raises(UnsafeCountError, match="92"):
        check_safe_count(92, H200, tmp_path)


THREE: tuple[BoundBy, ...] = ("compute", "memory", "launch")

names_of = st.integers(1, 14).map(lambda count: [f"j{number:02}" for number in range(count)])


def even_kinds(names: Iterable[str]) -> dict[str, BoundBy]:
    return {name: THREE[number % 3] for number, name in enumerate(names)}


def test_every_measured_job_has_a_kind() -> None:
    """No bundled job is left out, each kind has several, and names promise the right one."""
    points = bundled_solo_points()
    kinds = kinds_of(points)
    assert {"gemm": "compute", "triad": "memory", "mobilenet-infer-b2": "launch"}.items() <= (
        kinds.items()
    )
    assert kinds.keys() == {point.job for point in points}
    assert min(Counter(kinds.values()).values()) >= 5


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"sm_active_percent": 49.9, "dram_active_percent": 60.0}, "launch"),
        ({"sm_active_percent": 50.0, "dram_active_percent": 50.0}, "memory"),
        ({"sm_active_percent": 50.0, "dram_active_percent": 49.9}, "compute"),
        (
            {"sm_active_percent": 60.0, "dram_active_percent": 60.0, "flags": ("cpu-bound",)},
            "launch",
        ),
        ({"flags": ("cpu-bound",)}, "launch"),
        ({"sm_active_percent": 60.0}, None),
        ({"dram_active_percent": 60.0}, None),
    ],
)
def test_kind_by_counters(fields: dict[str, Any], kind: BoundBy | None) -> None:
    """The newest point at the largest share decides; without a counter there is no kind."""
    counters = {"sm_active_percent": 90.0, "dram_active_percent": 80.0}
    points = [
        solo_point("a", started_at="2026-03-01T00:00:00+00:00", share_percent=10.0, **counters),
        solo_point("a", started_at="2026-02-01T00:00:00+00:00", **fields),
        solo_point("a", started_at="2026-01-01T00:00:00+00:00", **counters),
    ]
    assert (kind_of(points), kinds_of(points)) == (kind, {"a": kind} if kind else {})


@given(compute=st.floats(0, 100), memory=st.floats(0, 100), busy=st.floats(0, 100))
@example(compute=HIGH_PERCENT, memory=HIGH_PERCENT, busy=0)
@example(compute=HIGH_PERCENT, memory=math.nextafter(HIGH_PERCENT, 0), busy=100)
@example(compute=math.nextafter(HIGH_PERCENT, 0), memory=HIGH_PERCENT, busy=0)
def test_kinds_agree_with_the_classes_of_the_report(
    compute: float, memory: float, busy: float
) -> None:
    """Pairs are drawn and reported by the same counters, cut at the same place."""
    point = solo_point(
        "a",
        sm_active_percent=compute,
        dram_active_percent=memory,
        memory_busy_percent=busy,
    )
    (code,) = job_classes([point]).values()
    kinds = {"HH": "memory", "HL": "compute", "LH": "launch", "LL": "launch"}
    assert kind_of([point]) == kinds[code]


@given(names=names_of, part=st.floats(0, 1.2), seed=st.text(max_size=5), selves=st.booleans())
@settings(max_examples=20)
def test_sample_is_balanced(names: list[str], part: float, seed: str, selves: bool) -> None:
    """It is the same for a seed, however jobs are ordered and repeated."""
    every, kinds = all_pairs(names, selves=selves), even_kinds(names)
    count = round(part * len(every))
    drawn = sample(names, count, seed, kinds, selves=selves)
    assert sample([*names[::-1], *names], count, seed, kinds, selves=selves) == drawn
    assert len(set(drawn) & set(every)) == len(drawn) == min(count, len(every))
    occurrences = Counter(name for pair in drawn for name in set(pair))
    numbers = [occurrences[name] for name in names]
    assert max(numbers) - min(numbers) <= 2


@pytest.mark.parametrize("selves", [True, False])
@pytest.mark.parametrize("count", [6, 7, 12, 24])
def test_each_job_of_a_sample_meets_every_kind(count: int, selves: bool) -> None:
    names = [f"j{number:02}" for number in range(count)]
    kinds = even_kinds(names)
    for seed in "abc":
        assert not unmet(names, kinds, sample(names, 3 * count, seed, kinds, selves=selves))


def test_selves_have_their_part_of_a_sample() -> None:
    """Twelve jobs have 78 pairs, 12 of them with themselves: 6 of a sample of half.

    Jobs that were never profiled take part, too.
    """
    names = [f"j{number:02}" for number in range(12)]
    drawn = {tuple(sample(names, 39, str(seed), {})) for seed in range(5)}
    assert [sum(a == b for a, b in pairs) for pairs in drawn] == [6] * 5


def unmet(names: Iterable[str], kinds: dict[str, BoundBy], pairs: Iterable[PairNames]) -> list[str]:
    met: defaultdict[str, set[BoundBy]] = defaultdict(set)
    for a, b in pairs:
        met[a].add(kinds[b])
        met[b].add(kinds[a])
    return [name for name in names if met[name] != set(THREE)]


# Cutting a campaign into blocks: nothing lost, everything within the GPU, few starts.


CLIENTS = 48


WINDOW_S = 6.5


"""1.5 s of settling, 2 to 8 s of window, 0.6 s between two."""


FULL = Share(100.0)


members = st.lists(
    st.builds(
        job,
        st.sampled_from("abcdef"),
        gate=st.sampled_from([True, True, True, False]),
        memory_mib=st.integers(100, 20_000) | st.none(),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda member: member.name,
)


@st.composite
def plans(draw: st.DrawFn) -> list[Target]:
    """Some of the windows of a few jobs, some of them repeated."""
    every = windows(draw(members), draw(st.sampled_from([(*NINE, UNCAPPED), NINE[2:6]])))
    chosen = draw(st.lists(st.sampled_from(every), min_size=1, max_size=80, unique=True))
    again = draw(st.lists(st.sampled_from(chosen), max_size=5, unique=True))
    return chosen + [replace(target, repeat=1) for target in again]


gpus = st.tuples(st.integers(1, 60), st.integers(2_000, 200_000) | st.none())


def fit(specs: Sequence[ProcessSpec], max_clients: int, memory_mib: float | None) -> bool:
    if len(specs) > max_clients or not all(spec.job.progress.gate for spec in specs):
        return False
    needs_mib = [spec.job.memory_mib for spec in specs]
    return memory_mib is None or (
        None not in needs_mib and sum(need or 0 for need in needs_mib) <= MEMORY_PART * memory_mib
    )


def runners_of(targets: Sequence[Target]) -> list[ProcessSpec]:
    return list(dict.fromkeys(spec for target in targets for spec in target.specs))


def length_s(blocks: Sequence[Block]) -> float:
    return sum(estimate_s([block], WindowRules()) for block in blocks)


@given(plan=plans(), gpu=gpus, chance=st.randoms(use_true_random=False))
def test_blocks_are_the_plan_and_fit_the_gpu(
    plan: list[Target], gpu: tuple[int, int | None], chance: random.Random
) -> None:
    """Whatever the order of the plan, each window is in one block.

    A block is within the process limit and the memory, or holds one window. A pair whose
    processes fit is in one block; a pair that is split shares its blocks with no other such pair.
    """
    blocks = cut(plan, *gpu, "seed", alone=False)
    mixed = [*plan, plan[0]]
    chance.shuffle(mixed)
    assert cut(mixed, *gpu, "seed", alone=False) == blocks
    assert Counter(target for block in blocks for target in block.targets) == Counter(plan)
    for block in blocks:
        assert Counter(block.specs) == Counter(runners_of(block.targets))
        assert len(block.targets) == 1 or fit(block.specs, *gpu)
    split = set[tuple[str, ...]]()
    for names in {target.jobs for target in plan}:
        holding = sum(names in block.pairs for block in blocks)
        assert not fit(runners_of([t for t in plan if t.jobs == names]), *gpu) or holding == 1
        split |= {names} if holding > 1 else set()
    assert all(len(block.pairs & split) <= 1 for block in blocks)


@pytest.mark.slow
def test_cut_does_not_depend_on_the_process() -> None:
    """Hosts that share a plan cut it alike, though each Python orders its sets in its own way."""
    program = """
from planned import jobs, windows
from advisor_profiling.campaign.campaign import cut, shard
from advisor_profiling.campaign.plan import sample
blocks = cut(windows(jobs("abcdefgh").values()), 48, 90_000, "seed")
print([[str(target) for target in block.targets] for block in shard(blocks, 2, 3)])
print(sample("abcdefgh", 20, "seed", {}))
"""
    answers = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(answers) == 1
    assert " with " in answers.pop()


@pytest.mark.parametrize("seed", ["", "a", "b"])
def test_starts_come_near_the_fewest(seed: str) -> None:
    """Eight jobs in all pairs: 240 starts are the fewest, at most an eighth more are made.

    A block of 48 processes has room for 4 jobs of 10 shares each. A job meets three others in it,
    so it must be started for at least three blocks to meet all seven: 8 * 3 * 10 starts.
    """
    blocks = cut(windows(jobs("abcdefgh").values(), selves=False), CLIENTS, None, seed, alone=False)
    assert 240 <= sum(len(block.specs) for block in blocks) <= 270


def test_jobs_without_a_gate_are_measured_alone_in_a_random_order() -> None:
    a, b = job("a"), job("b", gate=False)
    blocks = cut(windows([a, b]), CLIENTS, None, "seed")
    loose = [block for block in blocks if any(not r.job.progress.gate for r in block.specs)]
    assert [len(block.targets) for block in loose] == [1] * (10 + 6)
    assert [block.pairs for block in blocks if block not in loose] == [{("a", "a")}]
    # A process that happens to be there does not draw a solo window into a loose block.
    plan = [pair(a, Share(90), b, Share(10)), solo(a, Share(90))]
    assert [len(block.targets) for block in cut(plan, CLIENTS, None, "seed")] == [1, 1]
    plan = [solo(b, Share(percent)) for percent in range(10, 101, 10)]
    blocks = cut(plan, CLIENTS, None, "seed", alone=False)
    shares = [block.specs[0].share.percent for block in blocks]
    assert shares not in (sorted(shares), sorted(shares, reverse=True))


def test_unknown_memory_counts_where_memory_is_looked_at() -> None:
    """A job that does not say what it needs is measured alone; with no limit it needs no words."""
    plan = windows([job("a"), job("b", memory_mib=None)], selves=False)
    assert [len(cut(plan, CLIENTS, mib, "seed")) for mib in (143_771, None)] == [10, 1]


def test_each_block_has_its_references() -> None:
    """Each job with a process at 100 % is also measured alone, numbered by the block."""
    members = jobs("abcdefgh")
    blocks = cut(windows(members.values()), CLIENTS, None, "seed")
    for number, block in enumerate(blocks):
        alone = {target for target in block.targets if len(target.specs) == 1}
        names = {name for names in block.pairs for name in names}
        assert alone == {solo(members[name], FULL, number) for name in names}
    # Splits without 100 % start no process for a reference.
    blocks = cut(windows(members.values(), NINE), CLIENTS, None, "seed")
    assert all(len(target.specs) == 2 for block in blocks for target in block.targets)


def test_time_sliced_jobs_share_one_client_each() -> None:
    """Without limits a job needs one process, a second one next to itself, none for a repeat."""
    once = windows(jobs("abc").values(), [TIME_SLICED])
    for repeats in (1, 2):
        plan = [replace(target, repeat=n) for target in once for n in range(repeats)]
        blocks = cut(plan, CLIENTS, None, "seed")
        assert [(len(b.specs), len(b.targets)) for b in blocks] == [(6, 6 * repeats + 3)]


def test_windows_come_in_a_random_order() -> None:
    """Splits and pairs are not sorted, and each pair and each seed has its own order.

    The windows of a pair follow one another: where the GPU is taken away, one pair is split.
    """
    plan = windows(jobs("abcd").values())
    (block,), (other,) = cut(plan, CLIENTS, None, "one"), cut(plan, CLIENTS, None, "two")
    assert block.targets != other.targets
    met = [names for names, _ in itertools.groupby(block.targets, key=lambda t: t.jobs)]
    assert met[:-4] != sorted(met[:-4])
    orders = {tuple(t.specs[0].share for t in block.targets if t.jobs == names) for names in met}
    assert (len(met), len(orders)) == (10 + 4, 6 + 4 + 1)


def test_a_block_follows_one_with_the_same_clients() -> None:
    blocks = cut(windows(jobs("abcdefgh").values(), selves=False), CLIENTS, None, "seed")
    common = [len(set(a.specs) & set(b.specs)) for a, b in itertools.pairwise(blocks)]
    assert sum(common) >= 10 * len(common)


@given(plan=plans(), gpu=gpus, data=st.data())
def test_remaining_drops_what_is_done(
    plan: list[Target], gpu: tuple[int, int | None], data: st.DataObject
) -> None:
    blocks = cut(plan, *gpu, "seed")
    every = [target for block in blocks for target in block.targets]
    done = set(data.draw(st.lists(st.sampled_from(every), unique=True)))
    left = remaining(blocks, done)
    assert [t for block in left for t in block.targets] == [t for t in every if t not in done]
    assert all(set(block.specs) == set(runners_of(block.targets)) for block in left)


@given(plan=plans(), gpu=gpus, count=st.integers(1, 5))
def test_shards_part_the_blocks(
    plan: list[Target], gpu: tuple[int, int | None], count: int
) -> None:
    blocks = cut(plan, *gpu, "seed")
    shards = [shard(blocks, index, count) for index in range(1, count + 1)]
    assert Counter(block for part in shards for block in part) == Counter(blocks)
    homes = Counter(names for part in shards for names in {n for b in part for n in b.pairs})
    assert set(homes.values()) == {1}
    longest_s = max(length_s([b for b in blocks if b.pairs & block.pairs]) for block in blocks)
    lengths_s = [length_s(part) for part in shards]
    assert max(lengths_s) - min(lengths_s) <= longest_s + 1e-6


def test_blocks_of_a_shard_follow_those_with_the_same_clients() -> None:
    """In a shard too fewer processes are started than by the length of blocks alone."""
    part = shard(cut(windows(jobs("abcdefghij").values()), CLIENTS, 143_771, "seed"), 1, 1)
    by_length = sorted(part, key=lambda block: length_s([block]), reverse=True)
    assert part[0] == by_length[0]
    assert estimate_s(part, WindowRules()) < estimate_s(by_length, WindowRules())


@pytest.mark.parametrize(("index", "count"), [(0, 2), (3, 2), (-1, 2), (1, 0)])
def test_no_such_shard(index: int, count: int) -> None:
    with pytest.raises(InputError, match=f"no shard {index} of {count}"):
        shard([], index, count)


def test_estimate_counts_starts_and_windows() -> None:
    """A process with a gate that the block before started is not started again."""
    blocks = cut(windows(jobs("abcd").values()), CLIENTS, None, "seed")
    a, b = (solo(job(name, gate=name == "a"), FULL) for name in "ab")
    gated, loose = ([Block(one.specs, (one,))] * 2 for one in (a, b))
    assert [estimate_s(some, WindowRules()) for some in (blocks, [], gated, loose)] == [
        pytest.approx(48 * 1.5 + 88 * WINDOW_S), 0,
        pytest.approx(1.5 + 2 * WINDOW_S), pytest.approx(2 * 1.5 + 2 * WINDOW_S),
    ]  # fmt: skip
    assert estimate_s(blocks, rules_for(1.0)) == pytest.approx(48 * 1.5 + 88 * 2.6)


def test_profiles_are_measured_with_the_clients_that_are_there() -> None:
    """Each process once alone, the twin of a job beside itself not; no more starts than without."""
    plan = windows(jobs("ab").values())
    (with_profiles,) = cut(plan, CLIENTS, None, "seed", profiles=True)
    (without,) = cut(plan, CLIENTS, None, "seed")
    assert set(with_profiles.specs) == set(without.specs)
    alone = [t.specs[0] for t in with_profiles.targets if len(t.specs) == 1]
    assert sorted(map(str, alone)) == sorted(str(r) for r in without.specs if not r.copy)
    # First on the whole GPU: every other result of a job is compared with what it reports there.
    assert {str(target) for target in with_profiles.targets[:2]} == {"a at 100 %", "b at 100 %"}


NAMES = ("bert-train", "fft", "gemm", "null", "triad")
NINE_UNCAPPED = (*NINE, UNCAPPED)

Write = Callable[[str], Path]


def test_full_file(write: Write) -> None:
    path = write("""
        name: h200-pairs.2
        measure:
          - among: [bert-train, triad, gemm, fft]
            splits: [nine, uncapped]
          - pairs: [[bert-train, triad], [gemm, gemm]]
            splits: [time-sliced, 70/70, 66+66 units]
            repeats: 2
          - among: all
            sample: 40
            selves: false
            splits: [nine, 10/90]
          - sets: [fft+gemm+fft, triad@50+gemm]
            splits: [uncapped, time-sliced]
    """)
    assert load_plan(path, NAMES) == Plan(
        "h200-pairs.2",
        (
            PlanEntry(among=("bert-train", "triad", "gemm", "fft"), splits=NINE_UNCAPPED),
            PlanEntry(
                pairs=(("bert-train", "triad"), ("gemm", "gemm")),
                splits=(TIME_SLICED, Split((70.0, 70.0)), UnitSplit(66, 66)),
                repeats=2,
            ),
            PlanEntry(among="all", sample=40, selves=False, splits=NINE),
            PlanEntry(
                sets=(read_set("fft+gemm+fft", ""), read_set("triad@50+gemm", "")),
                splits=(UNCAPPED, TIME_SLICED),
            ),
        ),
        profiles=True,
    )


def test_file_names_the_run(tmp_path: Path) -> None:
    """Unless there is a name inside."""
    path = tmp_path / "my plan.yaml"
    path.write_text("measure: [{among: all, splits: [nine]}]")
    with pytest.raises(InputError, match=r"'my plan' cannot name a run\. add a name: letters"):
        load_plan(path, NAMES)
    assert load_plan(path.rename(tmp_path / "plan.yaml"), NAMES).name == "plan"


ENTRY = "among: all, splits: [nine]"


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("name: x", "1:1", "measure is missing"),
        ("measure: []", "1:10", "expected a list of what to measure, got an empty one"),
        (f"name: a b\nmeasure: [{{{ENTRY}}}]", "1:7", "letters, digits"),
        ("measure:\n- {among: all}", "2:3", "splits is missing"),
        ("measure:\n- {splits: [nine]}", "2:3", "expected among or pairs, got neither"),
        (
            "measure:\n- {among: all, pairs: [[fft, fft]], splits: [nine]}",
            "2:3",
            "expected among or pairs, got both",
        ),
        (f"measure:\n- {{{ENTRY}, repeat: 2}}", "2:32", "the nearest is repeats"),
        (f"measure:\n- {{{ENTRY}, repeats: 0}}", "2:41", "a whole number above 0, got '0'"),
        (
            "measure:\n- pairs: [[fft, fft]]\n  sample: 3\n  splits: [nine]",
            "3:11",
            "has a meaning only together with among",
        ),
        ("measure:\n- among: al\n  splits: [nine]", "2:10", "all, or a list of jobs, got 'al'"),
        (
            "measure:\n- among:\n  - fft\n  - traid\n  splits: [nine]",
            "4:5",
            "no job 'traid' among 5. the nearest is triad",
        ),
        (
            "measure:\n- pairs: [fft, triad]\n  splits: [nine]",
            "2:11",
            "a pair such as [bert-train, triad], got 'fft'",
        ),
        (
            "measure:\n- pairs:\n  - [fft, triad, gemm]\n  splits: [nine]",
            "3:5",
            "expected two jobs, got 3",
        ),
        (
            "measure:\n- sets: [fft+traid]\n  splits: [uncapped]",
            "2:10",
            "no job 'traid' among 5. the nearest is triad",
        ),
        ("measure:\n- sets: [fft]\n  splits: [uncapped]", "2:10", "two to 7 jobs such as a+b+c"),
        ("measure:\n- sets: fft\n  splits: [uncapped]", "2:9", "a list of sets such as"),
        ("measure:\n- sets: [fft+fft]\n  splits: [nine]", "3:11", "got 10/90"),
        (
            "measure:\n- sets: [fft+fft]\n  sample: 3\n  splits: [uncapped]",
            "3:11",
            "no meaning together with sets",
        ),
        ("measure:\n- among: all\n  splits: nine", "3:11", "a list of splits such as [nine"),
        ("measure:\n- among: all\n  splits:\n  - nine\n  - nein", "5:5", "got 'nein'"),
    ],
)
def test_faults_name_line_key_and_what_was_expected(
    write: Write, text: str, where: str, what: str
) -> None:
    path = write(text)
    with pytest.raises(InputError) as error:
        load_plan(path, NAMES)
    assert str(error.value).startswith(f"{path}:{where}: ")
    assert what in str(error.value)


def test_fault_that_only_the_gpu_shows(write: Write) -> None:
    """Counts of units are checked against the GPU, and the message still names their line."""
    path = write("""\
        measure:
          - pairs: [[fft, gemm]]
            splits: [uncapped, 66+60 units]
    """)
    plan = load_plan(path, NAMES)
    with pytest.raises(InputError) as error:
        expand(plan, H200, jobs(NAMES), [])
    assert str(error.value).startswith(f"{path}:3:24: splits: expected counts that sum to the 132")


_ENTRY_KEYS = ("among", "pairs", "sample", "selves", "sets", "repeats")
_KEYS = ("name", "measure", "splits", *_ENTRY_KEYS)
_scalars = (
    st.sampled_from(["all", "nine", "fft", "70/70", "66+66 units", "fft+fft@50"])
    | st.text(max_size=8)
    | st.integers()
    | st.floats()
    | st.booleans()
    | st.none()
)
_values = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(_KEYS) | st.text(max_size=5), inner, max_size=4)
    ),
)
_entries = st.fixed_dictionaries(
    {"splits": st.lists(_scalars, max_size=3) | _values},
    optional=dict.fromkeys(_ENTRY_KEYS, _values),
)


@given(measure=st.lists(_entries, max_size=3) | _values, name=_scalars)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_plans_raise_nothing_else(tmp_path: Path, measure: Any, name: Any) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(json.dumps({"name": name, "measure": measure}))
    try:
        plan = load_plan(path, NAMES)
    except InputError:
        return
    assert all(e.splits and (e.among or e.pairs or e.sets) for e in plan.entries)


_names = st.sampled_from(NAMES)
_splits = st.lists(
    st.sampled_from([*NINE, UNCAPPED, TIME_SLICED, UnitSplit(38, 94)]),
    min_size=1,
    unique=True,
).map(tuple)
_wishes = st.builds(
    PlanEntry,
    among=st.just("all") | st.lists(_names, min_size=1).map(tuple),
    selves=st.booleans(),
    sample=st.integers(1, 99) | st.none(),
    splits=_splits,
    repeats=st.integers(1, 3),
) | st.builds(
    PlanEntry,
    pairs=st.lists(st.tuples(_names, _names), min_size=1).map(tuple),
    splits=_splits,
    repeats=st.integers(1, 3),
)

_set_splits = st.lists(st.sampled_from([UNCAPPED, TIME_SLICED]), min_size=1, unique=True).map(tuple)
_members = st.builds(Member, _names, st.sampled_from([100.0, 50.0, 26.5]))
_set_wishes = st.builds(
    PlanEntry,
    sets=st.lists(st.lists(_members, min_size=2, max_size=7).map(tuple), min_size=1).map(tuple),
    splits=_set_splits,
    repeats=st.integers(1, 3),
)


@given(entries=st.lists(_wishes | _set_wishes, min_size=1, max_size=3))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_plan_is_read_as_it_was_written(tmp_path: Path, entries: list[PlanEntry]) -> None:
    """A written plan means the same when it is read; also of a job called `null`."""
    path = tmp_path / "plan.yaml"
    plan = Plan("a.b", tuple(entries))
    plan = replace(plan, profiles=plan.has_sets)
    path.write_text(to_yaml(plan))
    again = load_plan(path, NAMES)
    ordered = [
        replace(read, splits=entry.splits)
        for entry, read in zip(plan.entries, again.entries, strict=True)
        if set(entry.splits) == set(read.splits)
    ]
    assert replace(again, entries=tuple(ordered)) == plan


def test_options() -> None:
    """The same options name the same run."""
    first = plan_from_options("fft, gemm", "", "nine,uncapped", 2)
    assert first.entries == (PlanEntry(among=("fft", "gemm"), splits=NINE_UNCAPPED, repeats=2),)
    assert plan_from_options("all", "", "time-sliced", name="x", sample=5) == Plan(
        "x", (PlanEntry(among="all", sample=5, splits=(TIME_SLICED,)),)
    )
    both = plan_from_options("fft,gemm", "fft+gemm, triad + triad", "66+66 units")
    units = (UnitSplit(66, 66),)
    assert both.entries == (
        PlanEntry(among=("fft", "gemm"), splits=units),
        PlanEntry(pairs=(("fft", "gemm"), ("triad", "triad")), splits=units),
    )
    assert plan_from_options("fft , gemm", "", "nine,uncapped", 2).name == first.name
    assert first.name.startswith("pairs-")
    assert plan_from_options("fft,gemm", "", "nine", 2).name != first.name


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("", "", "nine"), "there is nothing to measure: jobs '', pairs ''"),
        (("fft", "", ""), "there is nothing to measure: .*give splits"),
        (("", "fft", "nine"), "--pairs: expected two jobs such as bert-train[+]triad, got 'fft'"),
        (("", "fft+gemm+fft", "nine"), "got 'fft[+]gemm[+]fft'"),
        (("", "fft+", "nine"), "got 'fft[+]'"),
        (("fft", "", "nien"), "--splits: expected .*got 'nien'. the nearest is nine"),
        *(
            (("fft", "", "nine", 1, name), re.escape(f"{name!r} cannot name a run. use letters"))
            for name in ("", "../../x", "a/b", ".hidden", "a" * 101)
        ),
    ],
)
def test_faulty_options(options: tuple[Any, ...], what: str) -> None:
    """Each is refused with its value; a run names a folder of logs, and nothing leads out of it."""
    with pytest.raises(InputError, match=what):
        plan_from_options(*options)


@pytest.mark.parametrize(
    ("text", "splits"),
    [
        ("nine", NINE),
        ("uncapped", (UNCAPPED,)),
        ("100/100", (UNCAPPED,)),
        ("time-sliced", (TIME_SLICED,)),
        ("70/70", (Split((70.0, 70.0)),)),
        ("12.5 / 87.5", (Split((12.5, 87.5)),)),
        ("66+66 units", (UnitSplit(66, 66),)),
        ("12 + 120 units", (UnitSplit(12, 120),)),
    ],
)
def test_words_for_splits(text: str, splits: tuple[Any, ...]) -> None:
    assert read_split(text, "here") == splits


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("nien", "got 'nien'. the nearest is nine"),
        ("time sliced", "the nearest is time-sliced"),
        ("", "expected nine, uncapped, time-sliced, 70/30 "),
        ("0/100", "got '0/100'. the driver takes 0 and percentages above 100"),
        ("50/101", "at most 100 %"),
        ("50/50/50", "got '50/50/50'"),
        ("50/-50", "got '50/-50'"),
        ("50/nan", "got '50/nan'"),
        ("50", "got '50'"),
        ("66+66", "got '66+66'"),
        ("66 units", "got '66 units'"),
        ("99.9999/1", "got '99.9999/1'"),
    ],
)
def test_word_that_is_no_split(text: str, what: str) -> None:
    with pytest.raises(InputError) as error:
        read_split(text, "here")
    assert str(error.value).startswith("here: expected ")
    assert what in str(error.value)


any_split = (
    st.sampled_from([*NINE, UNCAPPED, TIME_SLICED])
    | st.builds(UnitSplit, st.integers(0, 304), st.integers(0, 304))
    | st.tuples(st.integers(1, 1000), st.integers(1, 999)).map(
        lambda tenths: Split((tenths[0] / 10, tenths[1] / 10))
    )
)


@given(splits=st.lists(any_split, unique=True))
def test_splits_are_read_as_they_were_written(splits: list[Any]) -> None:
    again = [split for word in write_splits(splits) for split in read_split(word, "here")]
    assert (len(again), set(again)) == (len(splits), set(splits))
