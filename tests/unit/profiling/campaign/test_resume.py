"""Going on with a campaign: what earlier points answer, on this card and on others."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pair_points import pair_point
from planned import H200, jobs, solo_point, windows

from advisor.core.gpu import UNCAPPED, Share, Split
from advisor.core.job import ProgressSettings
from advisor.core.records import Point
from advisor_profiling.campaign.campaign import Block, cut
from advisor_profiling.campaign.colocation import left_to_measure
from advisor_profiling.window import Target, pair, solo

HERE, THERE = "GPU-1", "GPU-2"
FULL = Share(100.0)
SPLITS = (Split((30.0, 70.0)), Split((50.0, 50.0)), UNCAPPED)
GEMM, SORT, SPMV = jobs(("gemm", "sort", "spmv")).values()
BLOCKS = cut(windows((GEMM, SORT, SPMV), SPLITS), 8, None, "night")
PLAN = [target for block in BLOCKS for target in block.targets]


def answer(target: Target, card: str = HERE, mode: str = "", **fields: Any) -> Point:
    """The point that measuring a target under MPS gives."""
    first, *others = target.specs
    full = all(spec.share == FULL for spec in target.specs)
    values: dict[str, Any] = {
        "gpu_uuid": card,
        "mode": mode or ("uncapped" if full and others else "mps"),
        "repeat": target.repeat,
        "run": "night",
    }
    if not others:
        values |= {"job_hash": first.job.job_hash, "share_percent": first.share.percent}
        return solo_point(first.job.name, **{**values, **fields})
    for side, spec in zip("12", target.specs, strict=True):
        values |= {f"job_{side}": spec.job.name, f"job_{side}_hash": spec.job.job_hash}
    return pair_point(*(spec.share.percent for spec in target.specs), **{**values, **fields})


def left(blocks: Sequence[Block], points: Sequence[Point], mode: str = "mps") -> list[Block]:
    return left_to_measure(blocks, points, H200, mode)


def targets(blocks: Sequence[Block]) -> list[Target]:
    return [target for block in blocks for target in block.targets]


def of_pair(*names: str) -> list[Target]:
    return [target for target in PLAN if target.jobs == names]


LIMITED = pair(GEMM, Share(30.0), SORT, Share(70.0))
UNLIMITED = pair(GEMM, FULL, SORT, FULL)
TWINS = pair(GEMM, Share(50.0), GEMM, Share(50.0))
OTHER_UNIT = ProgressSettings(gate=True, unit="tiles")


@pytest.mark.parametrize(
    ("target", "fields"),
    [
        (LIMITED, {"job_1_hash": "0" * 16}),
        (LIMITED, {"job_2_hash": None}),
        (LIMITED, {"mode": "cu_mask"}),
        (LIMITED, {"repeat": 1}),
        (LIMITED, {"gpu_model": "NVIDIA H100"}),
        (LIMITED, {"share_1_percent": 70.0, "share_2_percent": 30.0}),
        (LIMITED, {"flags": ("failed",), "rate_1": None, "rate_2": None}),
        (TWINS, {"repeat": 1}),
        (UNLIMITED, {"mode": "mps"}),
        (UNLIMITED, {"mode": "time-sliced"}),
        (solo(GEMM, FULL), {"job_hash": replace(GEMM, command=("gemm", "--large")).job_hash}),
        (solo(GEMM, FULL), {"job_hash": replace(GEMM, progress=OTHER_UNIT).job_hash}),
        (solo(GEMM, FULL), {"mode": "uncapped"}),
        (solo(GEMM, FULL), {"repeat": 1}),
        (solo(GEMM, FULL), {"share_percent": 90.0}),
    ],
)
def test_point_of_something_else_is_no_answer(target: Target, fields: dict[str, Any]) -> None:
    """Another job behind the name, another way of sharing, another repeat, or a failure."""
    blocks = [Block(target.specs, (target,))]
    assert left(blocks, [answer(target, **fields)]) == blocks
    assert left(blocks, [answer(target, **fields), answer(target)]) == []


@pytest.mark.parametrize(
    ("target", "mode", "fields"),
    [
        (LIMITED, "mps", {"flags": ("not-settled",)}),
        (UNLIMITED, "uncapped", {"mode": "time-sliced"}),
        (solo(GEMM, FULL), "mps", {"job_hash": replace(GEMM, start_timeout_s=600.0).job_hash}),
    ],
)
def test_doubtful_point_is_an_answer(target: Target, mode: str, fields: dict[str, Any]) -> None:
    """It stays in the data with its flag; measuring it again and again would not end."""
    assert left([Block(target.specs, (target,))], [answer(target, **fields)], mode) == []
    assert mode == "mps" or left([Block(target.specs, (target,))], [answer(target)], mode)


@pytest.mark.parametrize(
    ("here", "there", "rest"),
    [
        ((), (), (0, 1, 2, 3)),
        ((2,), (), (0, 1, 3)),
        # Speeds are relative to the rate alone on the card that the pair is measured on.
        ((), (2,), (0, 1, 2, 3)),
        ((1,), (2,), (0, 2, 3)),
        # A block that another card finished is not opened here for the windows alone.
        ((), (0, 1, 2, 3), ()),
        # The pairs are done, and their speeds still lack what they are relative to.
        ((), (0, 1), (2, 3)),
    ],
)
def test_references_are_measured_where_their_pairs_are(
    here: tuple[int, ...], there: tuple[int, ...], rest: tuple[int, ...]
) -> None:
    """Two pairs and the two jobs alone, by their number in the block."""
    windows = (UNLIMITED, LIMITED, solo(GEMM, FULL, repeat=3), solo(SORT, FULL, repeat=3))
    known = [*(answer(windows[n]) for n in here), *(answer(windows[n], THERE) for n in there)]
    found = left([Block(UNLIMITED.specs, windows)], known)
    assert targets(found) == [windows[n] for n in rest]


@given(done=st.sets(st.sampled_from(PLAN)))
@example(done=set())
@example(done=set(PLAN))
def test_measured_and_left_are_the_plan(done: set[Target]) -> None:
    """Wherever a campaign was killed, nothing is lost and nothing is measured twice."""
    assert len(BLOCKS) > 1
    rest = left(BLOCKS, [answer(target) for target in done])
    assert targets(rest) == [target for target in PLAN if target not in done]
    for block in rest:
        assert set(block.specs) == {r for target in block.targets for r in target.specs}


@given(here=st.sets(st.sampled_from(PLAN)), there=st.sets(st.sampled_from(PLAN)))
def test_all_splits_of_a_pair_come_to_be_on_one_card(here: set[Target], there: set[Target]) -> None:
    """A pair that the other card has whole is done; of others what this one has counts alone."""
    points = [*(answer(t) for t in here), *(answer(t, THERE) for t in there)]
    rest = set(targets(left(BLOCKS, points)))
    assert not rest & here
    for names in {target.jobs for target in PLAN if len(target.specs) == 2}:
        wanted = set(of_pair(*names))
        assert wanted & rest == (set() if wanted <= there else wanted - here)
    assert set(PLAN) <= here | there | rest


def test_pair_is_whole_on_another_card_only_with_its_time_sliced_window() -> None:
    """With and without limits a pair is compared as well, so both come from one card."""
    blocks = cut(of_pair("gemm", "sort"), 8, None, "night", alone=False)
    limited = [answer(target, THERE) for target in of_pair("gemm", "sort")]
    beside = [("uncapped", UNLIMITED)]
    assert left_to_measure(blocks, limited, H200, "mps", beside) == blocks
    whole = [*limited, answer(UNLIMITED, THERE, "time-sliced")]
    assert left_to_measure(blocks, whole, H200, "mps", beside) == []
