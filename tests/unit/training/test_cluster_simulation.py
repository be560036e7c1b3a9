"""Conservation laws of the simulated cluster in docs/measurements/cluster."""

import importlib
import sys
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.core.finish import Rest
from advisor.predict.profiles import Profile, make_profiles
from advisor.predict.set_law import ENERGY_ERRORS, MEASURED_ON
from advisor.predict.sets import fills
from advisor_data.bundled import bundled_solo_points

FOLDER = Path(__file__).parents[3] / "docs/measurements/cluster"
MODEL, A, B = "GPU", "a", "b"
IDLE_W, ALONE_W = 70.0, {A: 500.0, B: 300.0}
SPEEDS = {(100.0, 100.0): (0.6, 0.7), (50.0, 50.0): (0.5, 0.8), (30.0, 70.0): (0.4, 0.9)}
PAIR_W = 600.0
HALF_SPEED, HALF_W = 0.55, 350.0
HOUR_S = 3600.0
ROUNDING_S = 1e-5


@pytest.fixture(scope="module")
def scripts() -> Generator[Mapping[str, Any]]:
    """The modules of the simulation, which stand beside their scripts and are no package."""
    names = [path.stem for path in FOLDER.glob("*.py")]
    sys.path.insert(0, str(FOLDER))
    saved: dict[str, ModuleType] = {n: sys.modules.pop(n) for n in names if n in sys.modules}
    wanted = ("cluster", "draw", "errors", "expected", "many", "measured", "mixes", "outcome")
    wanted = (*wanted, "policies", "truth", "workload")
    yield {name: importlib.import_module(name) for name in wanted}
    sys.path.remove(str(FOLDER))
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(saved)


@pytest.fixture(scope="module")
def simulation(scripts: Mapping[str, Any]) -> "Simulation":
    """A GPU model whose numbers are easy to add up; only `a` and `b` share."""
    way = scripts["truth"].Way
    one = {s: way(speeds, PAIR_W) for s, speeds in SPEEDS.items()}
    other = {s[::-1]: way(speeds[::-1], PAIR_W) for s, speeds in SPEEDS.items()}
    alone = {(kind, 100.0): Rest(1.0, power_w) for kind, power_w in ALONE_W.items()}
    limited = {(k, s): Rest(HALF_SPEED, HALF_W) for k in ALONE_W for s in (30.0, 50.0, 70.0)}
    site = scripts["truth"].Site(
        gpu_model=MODEL,
        idle_power_w=IDLE_W,
        alone=alone | limited,
        ways={(A, B): one, (B, A): other},
        measured_as={(A, B): 0},
    )
    return Simulation(scripts, {MODEL: site})


BOTH = {(A, B): {(30.0, 70.0): 1.2}, (B, A): {(70.0, 30.0): 1.2}}
UNCAPPED = {(A, B): {(100.0, 100.0): 1.1}, (B, A): {(100.0, 100.0): 1.1}}


@dataclass(frozen=True)
class Simulation:
    """The scripts, and sites to simulate."""

    scripts: Mapping[str, Any]
    sites: Mapping[str, Any]

    def job(self, number: int, kind: str, arrival_s: float, work_s: float) -> Any:
        return self.scripts["workload"].Job(number, "user", kind, MODEL, arrival_s, work_s)

    def run(self, jobs: list[Any], name: str, gpus: int = 1) -> Any:
        make = self.scripts["policies"]
        if name == "advised":
            joins = {pair: BOTH[pair] | UNCAPPED[pair] for pair in BOTH}
            return self.under(make.advised({MODEL: joins}, {MODEL: BOTH}, {MODEL: {}}), jobs, gpus)
        return self.under(getattr(make, name)(self.sites), jobs, gpus)

    def under(self, policy: Any, jobs: list[Any], gpus: int) -> Any:
        return self.scripts["cluster"].simulate(self.sites, {MODEL: gpus}, jobs, policy)


@settings(max_examples=settings().max_examples // 2)
@given(
    st.lists(st.tuples(st.sampled_from([A, B]), st.floats(0, 5e3), st.floats(1, 2e4)), min_size=1),
    st.integers(1, 4),
    st.sampled_from(["exclusive", "uncapped", "equal", "advised"]),
)
def test_every_job_ends_once_with_its_work(
    simulation: Simulation, drawn: list[tuple[str, float, float]], gpus: int, name: str
) -> None:
    by_arrival = sorted(drawn, key=lambda one: one[1])
    jobs = [simulation.job(n, *one) for n, one in enumerate(by_arrival)]
    ran = simulation.run(jobs, name, gpus)
    assert sorted(done.job.number for done in ran.finished) == list(range(len(jobs)))
    for done in ran.finished:
        assert done.done_s == pytest.approx(done.job.work_s, abs=ROUNDING_S)
        assert done.start_s >= done.job.arrival_s - ROUNDING_S
        assert done.end_s - done.start_s >= done.job.work_s - ROUNDING_S
    meter = ran.metered[MODEL]
    assert meter.busy_s <= gpus * ran.end_s * (1 + 1e-9)
    assert all(0 <= held <= meter.most <= gpus for held in ran.held)
    assert meter.shared_s + meter.stranded_s <= meter.busy_s * (1 + 1e-9)
    most = max(sum(speeds) for speeds in SPEEDS.values())
    assert sum(job.work_s for job in jobs) <= meter.busy_s * most + ROUNDING_S
    if name == "exclusive":
        assert meter.shared_s == 0
        assert meter.energy_j == pytest.approx(sum(j.work_s * ALONE_W[j.kind] for j in jobs))


def test_exclusive_without_a_queue_takes_what_jobs_take_alone(simulation: Simulation) -> None:
    """And the energy is power times time: of both jobs, and of the idle GPU."""
    jobs = [simulation.job(0, A, 0, 2 * HOUR_S), simulation.job(1, B, HOUR_S, HOUR_S / 2)]
    for name in ("exclusive", "uncapped", "advised"):
        ran = simulation.run(jobs, name, 2)
        ends = {done.job.number: done.end_s for done in ran.finished}
        assert ends == {0: pytest.approx(2 * HOUR_S), 1: pytest.approx(1.5 * HOUR_S)}
        assert ran.held == [1] * 4
        figures = simulation.scripts["outcome"].figures(ran, horizon_s=4 * HOUR_S)
        busy_wh = 2 * ALONE_W[A] + 0.5 * ALONE_W[B]
        assert figures["busy_mwh"] == pytest.approx(busy_wh / 1e6)
        idle_wh = IDLE_W * (2 * 4 - 2.5)
        assert figures["energy_mwh"] == pytest.approx((busy_wh + idle_wh) / 1e6)
        assert figures["slowdown"] == pytest.approx(1)


def test_two_jobs_end_when_arithmetic_says(simulation: Simulation) -> None:
    """One joins in the middle: alone, together, and what is left alone again."""
    jobs = [simulation.job(0, A, 0, 2 * HOUR_S), simulation.job(1, B, HOUR_S, 0.7 * HOUR_S)]
    ran = simulation.run(jobs, "uncapped")
    # b takes an hour at 0.7; a does 1 h alone, 0.6 h beside b, and 0.4 h alone.
    assert _ends_h(ran) == {1: pytest.approx(2), 0: pytest.approx(2.4)}
    meter = ran.metered[MODEL]
    assert meter.energy_j == pytest.approx(HOUR_S * (1.4 * ALONE_W[A] + PAIR_W))
    assert meter.shared_s == pytest.approx(HOUR_S)
    assert meter.stranded_s == 0


def test_a_limit_stays_when_the_other_job_has_ended(simulation: Simulation) -> None:
    """Two that wait start together at the advised split; the one that is left keeps its share."""
    first = simulation.job(0, A, 0, HOUR_S)
    pair = [simulation.job(1, A, 60, HOUR_S), simulation.job(2, A, 120, HOUR_S)]
    jobs = [first, *pair, simulation.job(3, B, 180, 1.8 * HOUR_S)]
    policy = simulation.scripts["policies"].advised({MODEL: {}}, {MODEL: BOTH}, {MODEL: {}})
    ran = simulation.under(policy, jobs, 1)
    # From 1 h on a (0.4) and b (0.9) share until 3 h; a has 0.2 h left, at its share.
    ends_h = _ends_h(ran)
    assert ends_h[3] == pytest.approx(3)
    assert ends_h[1] == pytest.approx(3 + 0.2 / HALF_SPEED)
    assert ran.metered[MODEL].stranded_s == pytest.approx(0.2 / HALF_SPEED * HOUR_S)


def test_same_seed_same_jobs_and_same_ends(simulation: Simulation) -> None:
    draw = simulation.scripts["workload"].draw_jobs
    one, again, other = (draw({MODEL: [A, B]}, {MODEL: 8}, 0.9, 0.5, seed) for seed in (1, 1, 2))
    assert one == again != other
    assert simulation.run(one, "advised", 8) == simulation.run(one, "advised", 8)


def test_jobs_arrive_as_published(scripts: Mapping[str, Any]) -> None:
    """Median and 90th percentile of run times, the load, and the daily wave."""
    workload = scripts["workload"]
    jobs = workload.draw_jobs({MODEL: [A, B]}, {MODEL: 500}, 0.8, 10, 1)
    works_s = sorted(job.work_s for job in jobs)
    assert works_s[len(jobs) // 2] == pytest.approx(19.77 * 60, rel=0.1)
    assert works_s[len(jobs) * 9 // 10] == pytest.approx(214.32 * 60, rel=0.1)
    assert sum(works_s) / (10 * workload.DAY_S * 500) == pytest.approx(0.8, rel=0.1)
    hours = [int(job.arrival_s / HOUR_S) % 24 for job in jobs]
    assert hours.count(16) / hours.count(4) == pytest.approx(240 / 85, rel=0.3)


def test_a_pair_is_held_out_on_all_gpu_models(scripts: Mapping[str, Any]) -> None:
    """Its rows are in one fold, wherever they were measured; pairs are in several folds."""
    pairs = [(f"job-{n}", f"mate-{n}") for n in range(30)] * 2
    first, second = (np.array(names) for names in zip(*pairs, strict=True))
    folds = scripts["expected"].folds(SimpleNamespace(job_a=first, job_b=second)).tolist()
    assert folds[:30] == folds[30:]
    assert len(set(folds)) == 10


def test_truth_is_measured(scripts: Mapping[str, Any]) -> None:
    """Only measured pairs share; both orders say the same; nobody is faster than alone."""
    data = scripts["measured"].read_data()
    for model, site in scripts["measured"].make_sites(data).items():
        measured = {m.jobs for m in data.measurements if m.gpu_model == model}
        for (a, b), ways in site.ways.items():
            assert {(a, b), (b, a)} & measured
            for (s, t), way in ways.items():
                turned = site.ways[b, a][t, s]
                assert turned.power_w == way.power_w
                # At equal shares beside its like a job has one way for both orders.
                is_one = (a, s) == (b, t)
                assert turned.speeds == (way.speeds if is_one else way.speeds[::-1])
                assert 0 < min(way.speeds) <= max(way.speeds) <= 1
                assert way.power_w > site.idle_power_w
                assert (a, s) in site.alone


@dataclass(frozen=True)
class Sets:
    """The truth of sets by seed, and policies of these."""

    scripts: Mapping[str, Any]
    expected: Any
    measured: Any
    model: str

    def of(self, seed: int) -> Any:
        return self.scripts["many"].Sets(self.expected, self.measured, seed)


@pytest.fixture(scope="module")
def sets(scripts: Mapping[str, Any]) -> Sets:
    """Bundled jobs of the GPU model on which sets were measured."""
    model = MEASURED_ON[0]
    known = make_profiles(bundled_solo_points())
    profiles = {job: profile for (job, of), profile in known.items() if of == model}
    measured = scripts["measured"]
    site = measured.make_sites(measured.read_data())[model]
    errors = scripts["errors"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(errors.SETS), *sys.path])
        law = importlib.import_module("law")
        # Every hundredth of the laws among which the fit looks: a tenth of the time.
        patch.setattr(law, "LAWS", law.LAWS[::100])
        errors.measured_errors()
    return Sets(scripts, scripts["many"].ExpectedSets(profiles), site, model)


@pytest.mark.parametrize("name", ["as_many_as_fit", "at_the_advice"])
@pytest.mark.parametrize("most", [2, 7])
def test_sets_do_all_work_on_fewer_cards(sets: Sets, name: str, most: int) -> None:
    """Jobs end with their work, servers when their time is over, and no card holds too many."""
    draw, many = sets.scripts["workload"].draw_jobs, sets.scripts["many"]
    likely = sets.scripts["mixes"].MIXES["Alibaba"].weights(sets.expected.profiles)
    jobs = draw({sets.model: list(likely)}, {sets.model: 48}, 0.9, 0.5, 3, likely=likely)
    policy = many.packed(sets.model, getattr(many, name)(sets.expected), most)
    sites = {sets.model: Crowds(sets.of(1), [])}
    ran = sets.scripts["cluster"].simulate(sites, {sets.model: 48}, jobs, policy)
    assert sorted(done.job.number for done in ran.finished) == list(range(len(jobs)))
    for done in ran.finished:
        assert done.done_s == pytest.approx(done.job.work_s, abs=ROUNDING_S)
        if sets.expected.profiles[done.job.kind].serving:
            assert done.end_s - done.start_s == pytest.approx(done.job.work_s)
    assert 2 <= max(sites[sets.model].sizes) <= most
    if name == "at_the_advice":
        assert ran.metered[sets.model].busy_s < sum(job.work_s for job in jobs)


@dataclass
class Crowds:
    """A truth that keeps how many ran on a GPU."""

    truth: Any
    sizes: list[int]

    @property
    def idle_power_w(self) -> float:
        return self.truth.idle_power_w

    def together(self, members: Any) -> Any:
        self.sizes.append(len(members))
        return self.truth.together(members)


def test_energy_is_off_as_that_of_measured_sets(sets: Sets) -> None:
    """Over seeds; and the range of an answer's energy holds nine of ten, give or take."""
    members = tuple((f"{kind}-train-b2", 100.0) for kind in ("bert", "mobilenet", "resnet50"))
    said = sets.expected.of(members)
    drawn = np.array(
        [
            _gain(sets.of(seed).together(members), said) / _gain(_as_said(said), said)
            for seed in range(1000)
        ]
    )
    like = sets.scripts["errors"].measured_errors().sets["no filling", False]
    at = (0.05, 0.5, 0.95)
    measured = np.quantile([of.energy for of in like], at)
    # A card that does little still draws its active idle power, which lowers the low end.
    assert np.quantile(drawn, at) == pytest.approx(measured, rel=0.07)
    low, high = ENERGY_ERRORS["no filling"]
    assert np.mean((low <= drawn) & (drawn <= high)) > 0.85
    assert sets.of(1).together(members) == sets.of(1).together(members)


@settings(max_examples=settings().max_examples // 2)
@given(st.lists(st.integers(0, 99), min_size=2, max_size=7), st.integers(0, 99))
def test_no_set_does_more_than_a_card_can(sets: Sets, drawn: list[int], seed: int) -> None:
    """Jobs that fill it get no more SM time than was measured; watts stay within its limits."""
    names = sorted(sets.expected.profiles)
    kinds = sorted(names[number % len(names)] for number in drawn)
    way = sets.of(seed).together(tuple((kind, 100.0) for kind in kinds))
    profiles = [sets.expected.profiles[kind] for kind in kinds]
    assert 0 < min(way.speeds) <= max(way.speeds) <= 1
    assert _sm_time(profiles, way.speeds) <= sets.scripts["errors"].MOST_FILLING + 1e-9
    # Pairs that were measured are scaled to the card of the profiles.
    assert sets.measured.idle_power_w < way.power_w <= 1.03 * profiles[0].power_limit_w


def test_no_measured_pair_does_more_than_sets_may(sets: Sets) -> None:
    """The limit on SM time is what was measured, and no wider than by 3 %."""
    most = max(
        _sm_time([sets.expected.profiles[kind] for kind in pair], way.speeds)
        for pair, ways in sets.measured.ways.items()
        for way in ways.values()
    )
    assert most <= sets.scripts["errors"].MOST_FILLING <= 1.03 * most


def _gain(way: Any, said: Any) -> float:
    alone = sum(s * p.solo_power_w for s, p in zip(way.speeds, said.parts, strict=True))
    return alone / way.power_w


def _as_said(said: Any) -> SimpleNamespace:
    speeds = [part.speed.value for part in said.parts]
    return SimpleNamespace(speeds=speeds, power_w=said.power_w.value)


def _sm_time(profiles: list[Profile], speeds: tuple[float, ...]) -> float:
    active = [float(p.values["sm_active_percent"][-1]) / 100 for p in profiles]
    filling = zip(speeds, active, profiles, strict=True)
    return sum(s * a for s, a, p in filling if fills(p) and not p.serving)


def test_pairs_among_sets_do_as_measured(sets: Sets) -> None:
    """Two that were measured together and serve nobody are not predicted."""
    (a, b), ways = next(iter(sets.measured.ways.items()))
    (s, t), way = next(iter(ways.items()))
    found = sets.of(1).together(((a, s), (b, t)))
    assert (found.speeds, found.power_w) == (way.speeds, way.power_w)


def test_memory_bounds_as_many_as_fit(sets: Sets) -> None:
    """Of the least active jobs of Acme four fit on a card, of the most active one."""
    acme = sets.scripts["mixes"].MIXES["Acme"].with_memory(sets.expected.profiles)
    answer = sets.scripts["many"].as_many_as_fit(sets.scripts["many"].ExpectedSets(acme))
    small = ("bert-train-b2", 100.0)
    assert [bool(answer((small,) * n, small[0])) for n in (3, 4)] == [True, False]
    assert answer((("gemm", 100.0),), "gemm") is None


def test_mixes_hold_every_part(sets: Sets) -> None:
    """Kinds are there for each published part, so that none is lost."""
    for mix in sets.scripts["mixes"].MIXES.values():
        weights = mix.weights(mix.with_memory(sets.expected.profiles))
        assert sum(weights.values()) == pytest.approx(1, abs=0.002)


def test_an_interval_is_that_of_student(scripts: Mapping[str, Any]) -> None:
    """1, 2, 3: 4.303 standard errors of 1 / sqrt(3); changes are taken pair by pair."""
    assert scripts["outcome"].mean([1.0, 2.0, 3.0]) == (
        2.0,
        pytest.approx(4.3027 / 3**0.5, rel=1e-4),
    )
    middle, half = scripts["outcome"].change([11.0, 22.0], [10.0, 20.0])
    assert (middle, half) == (pytest.approx(10), pytest.approx(0, abs=1e-9))


def test_freed_cards_that_idle_cost_the_same_however_long_one_looks(
    scripts: Mapping[str, Any],
) -> None:
    """10 of 100 MWh are saved by what is off, and 2 taken by the cards that idle instead."""
    alone, shared = {"busy_mwh": 100.0}, {"busy_mwh": 90.0}
    for rest_mwh in (50.0, 500.0):
        totals = {"exclusive": 100 + rest_mwh, "sets": 92 + rest_mwh}
        rows = {
            "exclusive": [{**alone, "energy_mwh": totals["exclusive"]}] * 2,
            "sets": [{**shared, "energy_mwh": totals["sets"]}] * 2,
        }
        assert scripts["draw"].freed_idle("sets", rows.__getitem__) == "-8.0 ± 0.0 %"


def _ends_h(ran: Any) -> dict[int, float]:
    return {done.job.number: done.end_s / HOUR_S for done in ran.finished}
