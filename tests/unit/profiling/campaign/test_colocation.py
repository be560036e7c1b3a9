"""A plan on one GPU or a part of it: what is measured, where, and what is said of it."""

import itertools
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pair_points import pair_point
from planned import H200, MI300X, jobs, kept, solo_point
from store_points import point
from unsafe_counts import checked_132
from watching import Watching

from advisor.core.gpu import TIME_SLICED, UNCAPPED, Split
from advisor.core.records import PairPoint, Point
from advisor.errors import InputError, UnsafeCountError
from advisor_data import open_store
from advisor_profiling.campaign.campaign import Cost
from advisor_profiling.campaign.plan import (
    MOST_JOBS,
    Campaign,
    CampaignReport,
    JobSet,
    Member,
    OpenTestbed,
    PairNames,
    Plan,
    PlanEntry,
    PlannedWindows,
    Skipped,
    SplitRequest,
    carry_out,
    expand,
    plan_from_options,
    read_set,
    write_set,
)
from advisor_profiling.testbed import Mode, ReplayTestbed, Testbed
from advisor_profiling.window import rules_for

JOBS = ("fft", "gemm", "sort", "triad")
SPLITS = (Split((30.0, 70.0)), Split((50.0, 50.0)), UNCAPPED)
SOLO = [
    point(job=job, share_percent=share, rate=share, power_w=200 + share, memory_used_mib=20,
          units_total=132)
    for job in JOBS
    for share in (30.0, 50.0, 70.0, 100.0)
]  # fmt: skip
PAIRS = [
    pair_point(a, b, job_1=first, job_2=second, mode=mode)
    for first, second in itertools.combinations_with_replacement(JOBS, 2)
    for a, b, mode in (
        (30.0, 70.0, "mps"), (70.0, 30.0, "mps"), (50.0, 50.0, "mps"),
        (100.0, 100.0, "uncapped"), (100.0, 100.0, "time-sliced"),
    )
]  # fmt: skip
TWO_PAIRS: tuple[PairNames, ...] = (("fft", "gemm"), ("sort", "triad"))

Window = tuple[str | float, ...]


class Gpus:
    """Opens replays of one card, and remembers when, and with what mode."""

    def __init__(
        self, card: str = "GPU-1", max_clients: int = 48, memory_mib: int | None = None
    ) -> None:
        self._card, self._max_clients, self._memory_mib = card, max_clients, memory_mib
        self.log: list[str] = []

    @contextmanager
    def open(self, mode: Mode | None) -> Generator[Testbed]:
        self.log.append(f"open {mode}")
        testbed = ReplayTestbed(SOLO, PAIRS, mode)
        testbed.max_clients = self._max_clients
        testbed.gpu = replace(testbed.gpu, uuid=self._card, memory_mib=self._memory_mib)
        yield testbed
        self.log.append(f"close {mode}")


def plan(
    *splits: SplitRequest, pairs: tuple[PairNames, ...] = TWO_PAIRS, among: tuple[str, ...] = ()
) -> Plan:
    return Plan("night", (PlanEntry(splits=splits or SPLITS, pairs=pairs, among=among),))


def measure(
    wanted: Plan,
    folder: Path,
    open_testbed: OpenTestbed | None = None,
    part: tuple[int, int] = (1, 1),
    known: Sequence[Point] = (),
    reporter: Watching | None = None,
    *,
    dry_run: bool = False,
) -> CampaignReport:
    with open_store(None, folder) as store:
        campaign = Campaign(
            plan=wanted,
            part=part,
            jobs=ReplayTestbed(SOLO).jobs,
            measured=known,
            store=store,
            reporter=reporter or Watching(),
            rules=rules_for(0.5),
            dry_run=dry_run,
        )
        return carry_out(campaign, open_testbed or Gpus().open)


def windows(points: Iterable[PairPoint]) -> Counter[Window]:
    return Counter((*p.jobs, p.mode, *p.shares_percent) for p in points)


def pairs(folder: Path) -> set[tuple[str, ...]]:
    return {point.jobs for point in kept(folder)}


def alone(folder: Path) -> Counter[Window]:
    with open_store(None, folder) as store:
        return Counter((p.job, p.share_percent, p.mode) for p in store.solo_points())


def test_whole_plan_is_measured(tmp_path: Path) -> None:
    gpus = Gpus()
    report = measure(plan(), tmp_path, gpus.open)
    assert gpus.log == ["open None", "close None"]
    assert windows(kept(tmp_path)) == Counter(
        (*names, mode, a, b)
        for names in TWO_PAIRS
        for mode, a, b in (("mps", 30, 70), ("mps", 50, 50), ("uncapped", 100, 100))
    )
    assert alone(tmp_path) == Counter((job, 100, "mps") for job in JOBS)
    assert (report.gpu_model, report.windows, report.measured) == ("NVIDIA H200", 10, 10)
    assert (report.skipped, report.failures) == ((), ())
    assert 0 < report.cost.window_s < report.cost.duration_s


# parts


@pytest.mark.parametrize("max_clients", [48, 1000])
@pytest.mark.parametrize("splits", [SPLITS, SPLITS[:1], (TIME_SLICED,), (*SPLITS, TIME_SLICED)])
def test_two_parts_have_one_of_two_pairs_each(
    splits: tuple[Split, ...], max_clients: int, tmp_path: Path
) -> None:
    """However many processes the GPU takes: a card that stands idle is paid for as well."""
    opened = Gpus(max_clients=max_clients).open
    for number in (1, 2):
        measure(plan(*splits), tmp_path / str(number), opened, (number, 2))
    found = [pairs(tmp_path / str(number)) for number in (1, 2)]
    assert sorted(map(sorted, found)) == [[TWO_PAIRS[0]], [TWO_PAIRS[1]]]


def test_parts_are_disjoint_and_together_the_plan(tmp_path: Path) -> None:
    """Hosts that know nothing of each other measure each window once, each pair on one card."""
    wanted = plan(*SPLITS[1:], TIME_SLICED, pairs=(), among=JOBS[:3])
    for number in (1, 2, 3):
        measure(wanted, tmp_path / str(number), part=(number, 3))
    parts = [kept(tmp_path / str(number)) for number in (1, 2, 3)]
    together = windows(point for part in parts for point in part)
    assert set(together.values()) == {1}
    assert Counter(key[2:] for key in together) == {
        ("mps", 50, 50): 6, ("uncapped", 100, 100): 6, ("time-sliced", 100, 100): 6
    }  # fmt: skip
    assert sum(len({p.jobs for p in part}) for part in parts) == 6


def test_part_is_the_same_whatever_was_measured_before(tmp_path: Path) -> None:
    """Parts that share a store come one after the other as well as side by side."""
    wanted = plan(*SPLITS, TIME_SLICED, pairs=(), among=JOBS[:3])
    for number in (1, 2, 1, 2):
        measure(wanted, tmp_path, part=(number, 2))
    found = windows(kept(tmp_path))
    assert (set(found.values()), len(found)) == ({1}, 6 * 4)


# going on


def test_finished_plan_is_not_measured_again(tmp_path: Path) -> None:
    """Under another name it is another campaign, such as for the noise ceiling."""
    wanted = plan(*SPLITS, TIME_SLICED)
    first, before, told = measure(wanted, tmp_path), kept(tmp_path), Watching()
    second = measure(wanted, tmp_path, reporter=told)
    assert first.measured == first.windows == second.windows == 12
    assert (second.to_measure, second.measured, second.estimated_s, second.cost) == (
        0,
        0,
        0,
        Cost(),
    )
    assert (told.phases, told.points, kept(tmp_path)) == ([], [], before)
    assert measure(replace(wanted, name="again"), tmp_path).measured == 12


@pytest.mark.parametrize("after", [1, 9])
def test_interrupted_plan_is_gone_on_with(after: int, tmp_path: Path) -> None:
    """No point is lost and none is measured twice; a dry run tells what is left."""

    def interrupt(point: Point, done: int, total: int, eta_s: float) -> None:
        if done == after:
            raise KeyboardInterrupt

    wanted, told = plan(), Watching()
    told.point = interrupt
    with pytest.raises(KeyboardInterrupt):
        measure(wanted, tmp_path, reporter=told)
    whole = measure(wanted, tmp_path / "new", dry_run=True)
    dry = measure(wanted, tmp_path, dry_run=True)
    assert (dry.windows, dry.to_measure) == (10, 10 - after)
    assert 0 < dry.estimated_s < whole.estimated_s
    rest = measure(wanted, tmp_path)
    assert (rest.windows, rest.to_measure, rest.measured) == (10, 10 - after, 10 - after)
    assert (set(windows(kept(tmp_path)).values()), len(kept(tmp_path))) == ({1}, 6)


def test_pair_of_another_card_is_left_there(tmp_path: Path) -> None:
    """One of two cards is gone: the other measures what that one had not begun."""
    wanted = plan(*SPLITS, TIME_SLICED)
    measure(wanted, tmp_path, Gpus("GPU-2").open, (2, 2))
    (there,) = pairs(tmp_path)
    measure(wanted, tmp_path, Gpus("GPU-1").open, (1, 1))
    found = kept(tmp_path)
    assert {p.jobs: p.gpu_uuid for p in found} == {names: (
        "GPU-2" if names == there else "GPU-1") for names in TWO_PAIRS}  # fmt: skip
    assert set(windows(found).values()) == {1}


# without measuring


def test_dry_run_tells_windows_and_seconds_and_measures_nothing(tmp_path: Path) -> None:
    wanted, told = plan(*SPLITS, TIME_SLICED), Watching()
    dry = measure(wanted, tmp_path, reporter=told, dry_run=True)
    assert (kept(tmp_path), dry.windows, dry.to_measure, dry.measured, dry.cost) == (
        [], 12, 12, 0, Cost()
    )  # fmt: skip
    begins = [phase.partition(" block")[0] for phase in told.phases]
    assert begins == ["10 windows in 1", "2 windows in 1"]
    assert measure(wanted, tmp_path).estimated_s == dry.estimated_s > 0


# with and without MPS


def test_time_sliced_windows_are_measured_without_mps(tmp_path: Path) -> None:
    """The other testbed is opened after the first is closed: each waits for the GPU's lock."""
    gpus = Gpus()
    parts = [measure(p, tmp_path / "dry", dry_run=True) for p in (plan(), plan(TIME_SLICED))]
    report = measure(plan(*SPLITS, TIME_SLICED), tmp_path, gpus.open)
    assert gpus.log == ["open None", "close None", "open uncapped", "close uncapped"]
    assert report.estimated_s == pytest.approx(sum(part.estimated_s for part in parts))
    assert report.cost.starts == 12 + 4
    assert Counter(p.mode for p in kept(tmp_path)) == {"mps": 4, "uncapped": 2, "time-sliced": 2}
    assert {mode for _, _, mode in alone(tmp_path)} == {"mps"}


# sets of more jobs

SETS = tuple(read_set(text, "") for text in ("fft+gemm+sort", "fft@50+gemm+sort", "fft+fft+triad"))
THREE = [
    pair_point(
        a, 100.0, job_1=first, job_2=second, job_3=third, mode=mode,
        share_3_percent=100.0, rate_3=5.0,
    )
    for first, second, third, a, mode in (
        ("fft", "gemm", "sort", 100.0, "uncapped"), ("fft", "gemm", "sort", 50.0, "mps"),
        ("fft", "fft", "triad", 100.0, "uncapped"), ("fft", "gemm", "sort", 100.0, "time-sliced"),
        ("fft", "fft", "triad", 100.0, "time-sliced"),
    )
]  # fmt: skip


@contextmanager
def open_sets(mode: Mode | None) -> Generator[Testbed]:
    yield ReplayTestbed(SOLO, THREE, mode)


def sets(*splits: Split) -> Plan:
    return Plan("sets", (PlanEntry(sets=SETS, splits=splits),), profiles=True)


def test_sets_are_measured_without_limits_with_one_and_time_sliced(tmp_path: Path) -> None:
    """Each job is started once per limit, and measured alone so; then again without MPS."""
    report = measure(sets(UNCAPPED, TIME_SLICED), tmp_path, open_sets)
    assert windows(kept(tmp_path)) == Counter(
        [
            ("fft", "gemm", "sort", "uncapped", 100, 100, 100),
            ("fft", "gemm", "sort", "mps", 50, 100, 100),
            ("fft", "fft", "triad", "uncapped", 100, 100, 100),
            ("fft", "gemm", "sort", "time-sliced", 100, 100, 100),
            ("fft", "fft", "triad", "time-sliced", 100, 100, 100),
        ]
    )
    assert alone(tmp_path) == Counter([("fft", 50, "mps"), *((job, 100, "mps") for job in JOBS)])
    assert report.cost.starts == 6 + 5
    assert (report.measured, report.skipped, report.failures) == (10, (), ())


def test_time_sliced_sets_by_themselves_have_their_jobs_alone(tmp_path: Path) -> None:
    """Speeds are relative to the same card and host, where MPS was never started."""
    free = Plan("sets", (PlanEntry(sets=SETS[::2], splits=(TIME_SLICED,)),), profiles=True)
    measure(free, tmp_path, open_sets)
    assert alone(tmp_path).keys() == {(job, 100, "uncapped") for job in JOBS}
    assert measure(free, tmp_path, open_sets).to_measure == 0


# what cannot be measured


def test_pair_that_does_not_fit_is_skipped_and_told(tmp_path: Path) -> None:
    """With the reason, before anything starts; the other pairs are measured."""
    small = [point(job=j, memory_used_mib=5.0, run="small") for j in ("fft", "gemm")]
    told = Watching()
    report = measure(plan(), tmp_path, Gpus(memory_mib=40).open, known=small, reporter=told)
    (skipped,) = report.skipped
    assert "sort needs 20 MiB and triad 20 MiB" in skipped.reason
    assert told.phases[0] == f"skipping sort + triad: {skipped.reason}"
    assert (pairs(tmp_path), report.windows) == ({("fft", "gemm")}, 5)
    nothing = measure(plan(*SPLITS, TIME_SLICED), tmp_path, Gpus(memory_mib=30).open)
    assert [skipped.pair for skipped in nothing.skipped] == list(TWO_PAIRS)
    assert (nothing.windows, nothing.measured, nothing.cost) == (0, 0, Cost())


def test_failures_of_both_benches_are_told(tmp_path: Path) -> None:
    wanted = plan(Split((70.0, 70.0)), SPLITS[1], TIME_SLICED)
    starved = [
        pair_point(70.0, 70.0, job_1=a, job_2=b, rate_2=0.0, mode="mps") for a, b in TWO_PAIRS
    ]

    @contextmanager
    def open_testbed(mode: Mode | None) -> Generator[Testbed]:
        yield ReplayTestbed(SOLO, [*PAIRS, *starved], mode)

    report = measure(wanted, tmp_path, open_testbed)
    assert [f.target.jobs for f in report.failures] == [*TWO_PAIRS]
    assert (report.to_measure, report.measured) == (6, 4)
    assert {p.shares_percent[0] for p in kept(tmp_path) if p.error} == {70}


def test_idle_power_is_that_from_before_the_first_job(tmp_path: Path) -> None:
    """The card needs seconds to cool after dozens of processes, so it is measured once."""
    opened: list[float | None] = []

    @contextmanager
    def open_testbed(mode: Mode | None) -> Generator[Testbed]:
        idle_power_w = 75.0 if mode is None else 130.0
        opened.append(idle_power_w)
        yield ReplayTestbed([replace(p, idle_power_w=idle_power_w) for p in SOLO], PAIRS, mode)

    measure(plan(*SPLITS, TIME_SLICED), tmp_path, open_testbed)
    assert opened == [75.0, 130.0]
    assert [p.idle_power_w for p in kept(tmp_path)] == pytest.approx([75.0] * 8)


# Sets of jobs: their text, and the windows that a plan makes of them.


SMALL = [f"small-{n}" for n in range(9)]
BIG = [f"big-{n}" for n in range(4)]
MEMBERS = jobs([*SMALL, *BIG])
KINDS = dict.fromkeys(MEMBERS)
BUSY = [solo_point(name, sm_active_percent=97.0, dram_active_percent=20.0) for name in BIG]
IDLE = [solo_point(name, sm_active_percent=12.0, dram_active_percent=2.0) for name in SMALL]

members = st.builds(
    Member,
    st.sampled_from(["gemm", "a.b-c_2", "x"]),
    st.sampled_from([100.0, 50.0, 26.5]),
)


def set_windows(entry: dict[str, Any], **known: Any) -> PlannedWindows:
    fields: dict[str, Any] = {"splits": (UNCAPPED,), **entry}
    solo = known.pop("solo", [*BUSY, *IDLE])
    return expand(Plan("run", (PlanEntry(**fields),)), H200, MEMBERS, solo, **known)


# as text


@given(st.lists(members, min_size=2, max_size=MOST_JOBS).map(tuple))
def test_set_is_read_as_it_was_written(members: JobSet) -> None:
    assert read_set(write_set(members), "--sets") == members


@pytest.mark.parametrize(
    "text", ["a", "", "a+", "+".join("abcdefgh"), "a+b@", "a+b@x", "a@0+b", "a+b@101", "a b+c"]
)
def test_other_texts_are_refused(text: str) -> None:
    """One job is no set, eight are too many, and a limit is a percentage."""
    with pytest.raises(InputError):
        read_set(text, "--sets")


# as windows


def test_named_sets_keep_their_limits() -> None:
    """Processes alike are told apart, and one of another limit is another process."""
    (target,) = set_windows({"sets": (read_set("small-1+small-0+small-0@50+small-1", ""),)}).mps
    assert [(str(spec), spec.copy) for spec in target.specs] == [
        ("small-0 at 50 %", 0),
        ("small-0 at 100 %", 0),
        ("small-1 at 100 %", 0),
        ("small-1 at 100 %", 1),
    ]


def test_sets_without_a_limit_are_measured_at_each_split_those_with_one_under_mps() -> None:
    sets = (read_set("big-0+small-0", ""), read_set("big-0@50+small-0", ""))
    work = set_windows({"sets": sets, "splits": (UNCAPPED, TIME_SLICED), "repeats": 2})
    assert [t.specs[0].share.percent for t in work.mps] == [100, 100, 50, 50]
    assert [t.specs[0].share.percent for t in work.time_sliced] == [100, 100]
    sliced = set_windows({"sets": sets, "splits": (TIME_SLICED,)})
    assert (len(sliced.mps), len(sliced.time_sliced)) == (0, 1)
    assert "needs MPS" in sliced.skipped[0].reason


def test_several_limits_need_mps() -> None:
    """CU masks of two would begin at the same unit; of one job alone they overlap with nobody's."""
    sets = (read_set("big-0@50+small-0@50+small-1", ""), read_set("big-0@50+small-0", ""))
    work = expand(Plan("run", (PlanEntry(sets=sets, splits=(UNCAPPED,)),)), MI300X, MEMBERS, [])
    assert [target.jobs for target in work.mps] == [("big-0", "small-0")]
    assert "would overlap" in work.skipped[0].reason
    assert len(set_windows({"sets": sets}).mps) == 2


def test_set_that_does_not_fit_into_memory() -> None:
    large = [solo_point(name, memory_used_mib=60_000.0) for name in SMALL]
    work = set_windows({"sets": (read_set("small-0+small-1+small-2", ""),)}, solo=large)
    reason = (
        "small-0 needs 60000 MiB, small-1 60000 MiB and small-2 60000 MiB, together more than "
        "136582 MiB (95 % of NVIDIA H200)"
    )
    assert (work.skipped, work.mps) == ((Skipped(("small-0", "small-1", "small-2"), reason),), ())


def test_limits_are_at_safe_counts() -> None:
    """A named one at an unsafe count is refused."""
    checked = checked_132()
    unsafe = replace(checked, wrong={**checked.wrong, 66: ("gemm",)})
    with pytest.raises(UnsafeCountError, match="66"):
        set_windows({"sets": (read_set("big-0@50+small-0", ""),)}, counts=unsafe)


def test_no_such_job_is_told() -> None:
    with pytest.raises(InputError, match="there is no job 'smal'"):
        set_windows({"sets": (read_set("smal+small-0", ""),)})


# of options


def test_options() -> None:
    named = plan_from_options("", "", "uncapped", sets="a+b+c, a+a+d@50")
    assert named.entries[0].sets == (read_set("a+b+c", ""), read_set("a+a+d@50", ""))
    assert (named.profiles, named.most_jobs, named.jobs(["a", "z"])) == (True, 3, set("abcd"))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"sets": "a"}, "--sets: expected two to 7 jobs"),
        ({"sets": "a+b", "splits": "70/30"}, "uncapped or time-sliced, got 70/30.*a[+]b@50[+]c"),
    ],
)
def test_faulty_options(options: dict[str, Any], what: str) -> None:
    given: dict[str, Any] = {"among": "", "pairs": "", "splits": "uncapped", **options}
    with pytest.raises(InputError, match=what):
        plan_from_options(**given)
