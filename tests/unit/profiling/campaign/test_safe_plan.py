"""At which splits pairs are measured where some counts are unsafe."""

from pathlib import Path
from typing import Any

import pytest
from planned import H200, MI300X, jobs, pair_point, shares_of, solo_point, units_of
from unsafe_counts import UNSAFE_132, checked_132

from advisor.core.gpu import Gpu, Share
from advisor.core.split import NINE, TIME_SLICED, UNCAPPED, Split
from advisor.errors import UnsafeCountError
from advisor.runtime.backend import CuMaskBackend
from advisor_profiling.campaign import plan as safe_plan
from advisor_profiling.campaign.plan import (
    CountRules,
    Plan,
    PlanEntry,
    PlannedWindows,
    check_asked_shares,
    check_safe_count,
    expand,
)
from advisor_profiling.campaign.splits import AroundBest, UnitSplit

JOBS = jobs(["bert", "triad"])
PAIR = (("bert", "triad"),)
KNOWN = CountRules(host=checked_132())
HAND = Split((70.0, 30.0))


def work(
    *splits: Any, counts: CountRules = KNOWN, gpu: Gpu = H200, earlier: Any = ()
) -> PlannedWindows:
    """What a plan of one pair means."""
    solo = [solo_point(name) for name in JOBS]
    plan = Plan("run", (PlanEntry(splits=splits, pairs=PAIR),))
    return expand(plan, gpu, JOBS, earlier, solo, counts)


def test_nine_are_moved_and_that_is_said_once() -> None:
    """With other splits next to them, which stay."""
    found = work(*NINE, UNCAPPED, TIME_SLICED)
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
        work(asked)
    found = work(asked, counts=CountRules(host=checked_132(), allow_unsafe=True))
    assert units_of(found)[0][0] == 92
    assert not found.notes


def test_jobs_that_report_results_are_judged_by_these(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its points says whether it is right; where only one job does, the other counts."""
    reporting = ["bert", "triad"]
    monkeypatch.setattr(safe_plan, "reports_results", lambda job: job.name in reporting)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType, reportUnknownMemberType]
    assert units_of(work(HAND)) == [(92, 38)]
    check_asked_shares([Share(70)], JOBS["bert"], KNOWN.safety("bert", H200, []))
    reporting.remove("triad")
    with pytest.raises(UnsafeCountError, match="30 % is 38 of"):
        work(HAND)


def test_around_the_best_split_unsafe_ones_are_left_out() -> None:
    found = units_of(work(AroundBest(8), earlier=[pair_point("bert", "triad", 66)]))
    assert found
    assert UNSAFE_132.isdisjoint(count for pair in found for count in pair)


def test_without_a_check_and_on_amd_nothing_is_moved() -> None:
    plain = work(*NINE, HAND, counts=CountRules())
    assert plain.mps == work(*NINE, HAND, counts=CountRules(allow_unsafe=True)).mps
    assert len(plain.mps) == 9
    assert shares_of(work(*NINE, counts=KNOWN, gpu=MI300X)) == shares_of(plain)


@pytest.mark.parametrize("name", ["triad", "bert"])
def test_on_amd_the_masks_of_a_window_do_not_overlap(name: str) -> None:
    """Not at 50/50 either, nor where two alike run next to each other."""
    plan = Plan("run", (PlanEntry(splits=NINE, pairs=(("bert", name),)),))
    for target in expand(plan, MI300X, JOBS, [], [solo_point(n) for n in JOBS], KNOWN).mps:
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
