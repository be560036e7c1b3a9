"""Cutting a campaign into blocks: nothing lost, everything within the GPU, few starts."""

import itertools
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planned import job, jobs, windows

from advisor.core.gpu import MEMORY_PART, Share
from advisor.core.split import NINE, TIME_SLICED, UNCAPPED
from advisor.errors import InputError
from advisor_profiling.campaign.campaign import Block, cut, estimate_s, remaining, shard
from advisor_profiling.window import ProcessSpec, Target, WindowRules, pair, rules_for, solo

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
        whole = fit(runners_of([t for t in plan if t.jobs == names]), *gpu)
        assert not whole or holding == 1
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
    assert len(cut(plan, CLIENTS, 143_771, "seed")) == 10
    assert len(cut(plan, CLIENTS, None, "seed")) == 1


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
    blocks = cut(windows(jobs("abcdefghij").values()), CLIENTS, 143_771, "seed")
    part = shard(blocks, 1, 1)
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
