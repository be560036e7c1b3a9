"""The served predictor: the same numbers as scikit-learn's, bounds, symmetry, and refusals."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_model
from hypothesis import given, settings, strategies as st
from sklearn.ensemble import ExtraTreesRegressor
from small_model import (
    POWER_TREES,
    SPLITS,
    changed_head,
    make_profile,
    save_model,
    without,
)

from advisor.core.gpu import EQUAL, UNCAPPED, WHOLE, Split
from advisor.core.objectives import DEFAULT_OBJECTIVE, OBJECTIVES, Interval
from advisor.errors import InputError, ModelError
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import (
    Float32s,
    Floats,
    Profile,
    Serving,
    kind_of,
    matrix,
    of_pair,
    physical_power_w,
    power_features,
    prior_kept,
    side,
    speed_features,
)
from advisor_models import registry
from advisor_models.model_predictor import (
    LARGEST,
    LEAF,
    MOST_LEVELS,
    NODE,
    Forest,
    ModelPredictor,
    read_trees,
)
from advisor_models.registry import (
    LIMITED,
    SPLIT,
    Artefact,
    LogBounds,
    on_gpu_model,
    write_artefact,
)
from advisor_models.single_window import SoloWindow, bundled_head, drawn_errors, wider
from advisor_training.train import forest_bytes

A, B = make_profile("a", 1), make_profile("b", 2)
FREE_A, FREE_B = (dataclasses.replace(one, power_limit_w=None) for one in (A, B))
"""The same on a card whose power limit is not known, so that it cuts no bound off."""


HEADS = {head.name: head for head in small_model.make_manifest({}).heads}
FEATURES = HEADS["speed"].features


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def predictor(folder: Path) -> ModelPredictor:
    return ModelPredictor(folder)


def test_same_as_scikit_learn(predictor: ModelPredictor) -> None:
    own, other = (side(p, [s.shares[i] for s in SPLITS]) for i, p in enumerate((A, B)))
    made = small_model.regressors().by_head
    expected_a = (
        np.exp(made["speed"].regressor_.predict(matrix(speed_features(own, [other]))))
        * prior_kept([own, other])
        * own.alone["relative_rate"]
    )
    ratio = np.exp(made["power"].regressor_.predict(matrix(power_features([own, other]))))
    found = predictor.predict([A, B], SPLITS)
    assert [p.parts[0].speed.value for p in found] == pytest.approx(expected_a.tolist(), rel=1e-12)
    expected_w = (ratio * physical_power_w([own, other])).tolist()
    assert [p.power_w.value for p in found] == pytest.approx(expected_w, rel=1e-12)


def test_many_pairs_are_as_each_of_them(predictor: ModelPredictor) -> None:
    asked = [((A, B), SPLITS), ((B, A), SPLITS[:1]), ((A, A), ()), ((B, B), SPLITS[1:])]
    for (profiles, splits), (expected, power_w) in zip(
        asked, predictor.expected(asked), strict=True
    ):
        alone = predictor.predict(profiles, splits)
        assert [p.split for p in alone] == [*splits]
        assert power_w.tolist() == pytest.approx([p.power_w.value for p in alone], rel=1e-12)
        speeds = [[p.parts[n].speed.value for p in alone] for n in range(2)]
        np.testing.assert_allclose(np.minimum(expected, 1), speeds, rtol=1e-12)
        rates = [(p.parts[0].rate.value, p.parts[0].solo_rate) for p in alone]
        whole = profiles[0].whole_gpu_rate
        assert rates == [(speed * whole, whole) for speed in speeds[0]]
    assert predictor.expected([]) == []


def test_bounds_by_situation_and_way(predictor: ModelPredictor) -> None:
    busy = [active(profile, 90.0) for profile in (FREE_A, FREE_B)]
    split, uncapped = predictor.predict(busy, [Split((30.0, 70.0)), UNCAPPED])
    (waits,) = predictor.predict([active(FREE_A, 20.0), busy[1]], [Split((30.0, 70.0))])
    for found, job, low, high in (
        (split, 0, -0.4, 0.1),
        (split, 1, -0.2, 0.05),
        (waits, 0, -0.4, 0.2),  # no launch-bound job was measured
        (uncapped, 0, -1.0, 0.5),
    ):
        assert bounds(found.parts[job].speed) == pytest.approx((low, possible(found, job, high)))
    assert bounds(split.power_w) == pytest.approx((-0.1, 0.05))
    assert bounds(uncapped.power_w) == pytest.approx((-0.2, 0.3))


shares = st.floats(10, 100, allow_nan=False)


@settings(max_examples=10)
@given(
    splits=st.lists(
        st.builds(Split, st.tuples(shares, shares)) | st.sampled_from(SPLITS),
        min_size=1,
        max_size=40,
    ),
    seeds=st.tuples(st.integers(0, 50), st.integers(0, 50)),
)
def test_swapping_the_jobs_swaps_the_answer(
    predictor: ModelPredictor, splits: list[Split], seeds: tuple[int, int]
) -> None:
    a, b = (make_profile(f"job{seed}", seed) for seed in seeds)
    forth = predictor.predict([a, b], splits)
    back = predictor.predict([b, a], [Split(split.shares[::-1], split.sharing) for split in splits])
    assert [*forth] == [swapped(p) for p in back]


def test_a_server_serves_what_it_could_do_up_to_its_demand(predictor: ModelPredictor) -> None:
    """The same profile with and without a demand that it serves from the smallest share on."""
    rates = np.full_like(A.values["rate"], 100.0)
    other = dataclasses.replace(A, values={**A.values, "rate": rates})
    serving = Serving(offered_rate=100.0, rate_noise=None, latency_p99_ms=())
    server = dataclasses.replace(other, serving=serving)
    split = EQUAL
    (busy,), (served,) = (predictor.predict([job, B], [split]) for job in (other, server))
    could = np.array([dataclasses.astuple(busy.parts[0].speed.times(50.0 / float(A.shares[0])))]).T
    assert list(dataclasses.astuple(served.parts[0].speed)) == serving.served(could)[:, 0].tolist()
    assert served.parts[0].speed.value <= 1
    assert served.parts[1].speed == busy.parts[1].speed


@settings(max_examples=10)
@given(splits=st.permutations(SPLITS), count=st.integers(1, len(SPLITS)))
def test_a_split_does_not_depend_on_the_others(
    predictor: ModelPredictor, splits: list[Split], count: int
) -> None:
    together = {p.split: p for p in predictor.predict([A, B], SPLITS)}
    some = splits[:count]
    assert [*predictor.predict([A, B], some)] == [together[split] for split in some]


def test_missing_columns_are_filled(predictor: ModelPredictor) -> None:
    names = ["dram_active_percent", "tensor_active_percent"]
    poor = without(A, *names)
    usual = {name: np.full_like(A.shares, predictor.manifest.fill[name]) for name in poor.missing}
    as_usual = dataclasses.replace(A, values={**A.values, **usual})
    assert [*predictor.predict([poor, B], SPLITS)] == [*predictor.predict([as_usual, B], SPLITS)]
    pairs = ([poor, B], [B, poor], [poor, poor], [A, B])
    assert [predictor.missing_columns(pair) for pair in pairs] == [names, names, names, []]


def test_extrapolation_names_features(predictor: ModelPredictor) -> None:
    busy = A.values["memory_busy_percent"] * 9
    hot = dataclasses.replace(A, values={**A.values, "memory_busy_percent": busy})
    expected = {f"{whose}_memory_busy_percent" for whose in ("own", "other", "sum")}
    for pair, names in (((A, B), set[str]()), ((hot, B), expected), ((B, hot), expected)):
        found = predictor.extrapolation(pair, SPLITS)
        assert names <= set(found)
        assert (len(found), "own_relative_rate" in found) == (len(set(found)), False)
        assert bool(found) == bool(names)


@pytest.mark.parametrize(("beyond", "outside"), [(0.04, False), (0.06, True)])
def test_extrapolation_begins_at_5_percent_of_the_range(
    tmp_path: Path, beyond: float, outside: bool
) -> None:
    known = HEADS["power"]
    place = known.features.index("relative_physical_power")
    power = float(physical_power_w([side(A, [50]), side(B, [50])])[0]) / small_model.LIMIT_W
    ranges = list(known.ranges)
    ranges[place] = (power - 0.1 * (1 + beyond), power - 0.1 * beyond)
    heads = changed_head("power", ranges=tuple(ranges))
    made = ModelPredictor(save_model(tmp_path / "m", heads=heads))
    assert made.extrapolation([A, B], [EQUAL]) == ["relative_physical_power"] * outside


def test_another_gpu_model_has_wider_bounds(predictor: ModelPredictor) -> None:
    a, b = (dataclasses.replace(p, gpu_model="Other") for p in (FREE_A, FREE_B))
    assert predictor.manifest.other_gpu.widening == {"speed": 2, "power": 3}
    here, there = (predictor.predict(pair, SPLITS) for pair in ((FREE_A, FREE_B), (a, b)))
    for known, found in zip(here, there, strict=True):
        speeds, powers = ((p.parts[0].speed, p.power_w) for p in (known, found))
        assert [one.value for one in speeds] == [one.value for one in powers]
        low, high = bounds(known.parts[0].speed)
        expected = [2 * low, possible(found, 0, 2 * high)]
        assert bounds(found.parts[0].speed) == pytest.approx(expected)
        assert bounds(found.power_w) == pytest.approx([3 * b for b in bounds(known.power_w)])


@settings(max_examples=10)
@given(factor=st.floats(0.2, 5), seeds=st.tuples(st.integers(0, 50), st.integers(0, 50)))
def test_card_with_other_watts_has_the_same_speeds(
    predictor: ModelPredictor, factor: float, seeds: tuple[int, int]
) -> None:
    a, b = (make_profile(f"job{seed}", seed) for seed in seeds)
    for known, found in zip(
        predictor.predict([a, b], SPLITS),
        predictor.predict([with_watts(a, factor), with_watts(b, factor)], SPLITS),
        strict=True,
    ):
        # Single precision may put a feature on the other side of a branch, by chance once in many.
        assert found.parts[0].speed.value == pytest.approx(known.parts[0].speed.value, rel=1e-6)
        assert found.power_w.value == pytest.approx(factor * known.power_w.value, rel=1e-6)


def with_watts(profile: Profile, factor: float) -> Profile:
    return dataclasses.replace(
        profile,
        values={**profile.values, "power_w": factor * profile.values["power_w"]},
        idle_power_w=factor * profile.idle_power_w,
        power_limit_w=factor * (profile.power_limit_w or 0),
    )


@pytest.mark.parametrize(
    ("jobs", "shares", "why"),
    [
        ((A, dataclasses.replace(B, gpu_model="Other")), (50.0, 50.0), "jobs share one GPU"),
        ((A, B), (5.0, 95.0), "a was not measured at 5"),
        ((A, B, A), (20.0, 30.0, 50.0), "no advice for 3 jobs"),
    ],
)
def test_what_it_knows_nothing_of_is_refused(
    predictor: ModelPredictor, jobs: Sequence[Profile], shares: Sequence[float], why: str
) -> None:
    with pytest.raises(InputError, match=why):
        predictor.predict(jobs, [Split(tuple(shares))])


@pytest.mark.parametrize(
    ("features", "why"),
    [
        (("x", "y"), "differ in .*own_relative_rate.* x, y"),
        (FEATURES[::-1], "differ in their order"),
        ((*FEATURES, "own_more"), "differ in own_more"),
        (None, "cannot fill in .*dram_active_percent"),
    ],
)
def test_other_features_are_refused(
    tmp_path: Path, features: tuple[str, ...] | None, why: str
) -> None:
    changes: dict[str, Any] = {"fill": {}}
    if features is not None:
        ranges = ((0.0, 1.0),) * len(features)
        changes = {"heads": changed_head("speed", features=features, ranges=ranges)}
    with pytest.raises(ModelError, match=why) as failed:
        ModelPredictor(save_model(tmp_path / "m", **changes))
    assert "advisor train" in str(failed.value)


def test_a_head_that_this_version_does_not_know_is_refused(tmp_path: Path) -> None:
    files = {**small_model.trees(), "throughput.trees": small_model.trees()[POWER_TREES]}
    manifest = small_model.make_manifest(files)
    other = dataclasses.replace(HEADS["power"], name="throughput")
    widening = {**manifest.other_gpu.widening, "throughput": 2.0}
    manifest = dataclasses.replace(
        manifest,
        heads=(*manifest.heads, other),
        other_gpu=dataclasses.replace(manifest.other_gpu, widening=widening),
    )
    write_artefact(tmp_path, Artefact(manifest, files))
    with pytest.raises(ModelError, match=r"predicts throughput\. .*install a newer advisor"):
        ModelPredictor(tmp_path)


def test_each_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was hashed is what is loaded: between two reads a file could become another one."""
    copy = save_model(tmp_path / "m")
    read = registry.read_whole

    def read_and_remove(path: Path, most_bytes: int) -> bytes:
        data = read(path, most_bytes)
        path.unlink()
        return data

    monkeypatch.setattr(registry, "read_whole", read_and_remove)
    assert ModelPredictor(copy).predict([A, B], SPLITS)
    assert list(copy.iterdir()) == []


def bounds(interval: Interval) -> tuple[float, float]:
    """What was added to the logarithm."""
    return math.log(interval.low / interval.value), math.log(interval.high / interval.value)


def possible(p: Prediction, job: int, log_high: float) -> float:
    """The upper bound, or up to where a job can be as fast as alone."""
    return min(log_high, math.log(max(1.0, 1 / p.parts[job].speed.value)))


def active(profile: Profile, percent: float) -> Profile:
    """With SMs so active, and so launch-bound or not."""
    column = np.full_like(profile.shares, percent)
    return dataclasses.replace(profile, values={**profile.values, "sm_active_percent": column})


def swapped(p: Prediction) -> Prediction:
    return dataclasses.replace(
        p, split=Split(p.split.shares[::-1], p.split.sharing), parts=p.parts[::-1]
    )


def wider_than(found: Interval, other: Interval) -> float:
    """How much further apart the logarithms of the bounds are."""
    return math.log(found.high / found.low) / math.log(other.high / other.low)


def test_no_bound_of_power_is_far_above_the_limit(tmp_path: Path) -> None:
    """However wide an interval is: a card keeps to its limit, but for 1.4 % that was measured."""
    known = ModelPredictor(save_model(tmp_path / "model"))
    limit_w = 300.0
    a, b = (dataclasses.replace(p, power_limit_w=limit_w) for p in (A, B))
    for found in known.predict([a, b], SPLITS):
        assert found.power_w.value <= found.power_w.high
        assert found.power_w.high <= max(1.015 * limit_w, found.power_w.value)


def test_at_the_power_limit_the_power_is_known(tmp_path: Path) -> None:
    intervals = {**small_model.POWER_BOUNDS, LIMITED: LogBounds(-0.01, 0.01)}
    heads = changed_head("power", intervals=intervals)
    known = ModelPredictor(save_model(tmp_path / "model", heads=heads))
    seen: set[tuple[bool, float]] = set()
    for limit_w in (100.0, 200.0, 300.0, 400.0, 2000.0):
        a, b = (dataclasses.replace(p, power_limit_w=limit_w) for p in (A, B))
        for found in known.predict([a, b], [s for s in SPLITS if s != UNCAPPED]):
            low = round(math.log(found.power_w.low / found.power_w.value), 9)
            seen.add((found.power_w.value >= 0.97 * limit_w, low))
    assert seen == {(True, -0.01), (False, -0.1)}


def test_power_has_bounds_of_its_gpu_model(tmp_path: Path, predictor: ModelPredictor) -> None:
    name = of_pair([kind_of(FREE_A), kind_of(FREE_B)], SPLIT)
    own = {on_gpu_model(name, small_model.GPU_MODEL): LogBounds(-0.02, 0.4)}
    heads = changed_head("power", intervals={**small_model.POWER_BOUNDS, **own})
    known = ModelPredictor(save_model(tmp_path / "model", heads=heads))
    ways = [Split((30.0, 70.0)), UNCAPPED]
    bounds = [(-0.1, 0.4), (-0.2, 0.3)]
    there, before = (one.predict([FREE_A, FREE_B], ways) for one in (known, predictor))
    for found, usual, (low, high) in zip(there, before, bounds, strict=True):
        assert found.power_w.low == pytest.approx(found.power_w.value * math.exp(low))
        assert found.power_w.high == pytest.approx(found.power_w.value * math.exp(high))
        assert found.parts == usual.parts


def test_energy_saved_has_bounds_of_its_own(tmp_path: Path, predictor: ModelPredictor) -> None:
    """Closer than those of speeds and power together; none of its own without limits."""
    efficiency = {SPLIT: LogBounds(-0.02, 0.03)}
    known = ModelPredictor(save_model(tmp_path / "model", efficiency=efficiency))
    split, uncapped = known.predict([A, B], [Split((30.0, 70.0)), UNCAPPED])
    worth = split.objective_value(OBJECTIVES[DEFAULT_OBJECTIVE])
    assert bounds(worth) == pytest.approx((-0.02, 0.03))
    saved = split.energy_saved
    assert (saved.value, saved.low, saved.high) == pytest.approx(
        tuple(1 - 1 / each for each in (worth.value, worth.low, worth.high))
    )
    (together,) = predictor.predict([A, B], [Split((30.0, 70.0))])
    assert saved.high - saved.low < together.energy_saved.high - together.energy_saved.low
    assert uncapped.efficiency is None
    assert uncapped.energy_saved.low < uncapped.energy_saved.value


def test_bounds_are_wider_without_counters(tmp_path: Path, predictor: ModelPredictor) -> None:
    widening = {"speed": 1.5, "power": 1.25}
    known = ModelPredictor(save_model(tmp_path / "model", no_counters=widening))
    for first, factors in ((A, (1, 1)), (without(A, "dram_active_percent"), (1.5, 1.25))):
        [found], [plain] = (
            p.predict([first, B], [Split((30.0, 70.0))]) for p in (known, predictor)
        )
        wider = (
            wider_than(found.parts[0].speed, plain.parts[0].speed),
            wider_than(found.power_w, plain.power_w),
        )
        assert wider == pytest.approx(factors)


# Trees as plain numbers: what scikit-learn says, and what no file can do.


COLUMNS = 4


def made_rows(count: int, seed: int) -> Float32s:
    """Whole numbers, so that many lie on a threshold's side by a hair or are equal."""
    return np.random.default_rng(seed).integers(0, 9, (count, COLUMNS)).astype(np.float32)


def fitted(trees: int, least_in_leaf: int, seed: int) -> Any:
    rows = made_rows(200, seed)
    answers = np.random.default_rng(seed).normal(size=len(rows))
    made: Any = ExtraTreesRegressor(trees, min_samples_leaf=least_in_leaf, random_state=seed)
    return made.fit(rows, answers)


def answers(data: bytes, rows: Float32s) -> list[float]:
    (found,) = Forest(read_trees("speed", data, rows.shape[1]))(rows)
    return found


def file_of(*nodes: tuple[int, float]) -> bytes:
    return np.array([*nodes], NODE).tobytes()


@settings(max_examples=20)
@given(st.integers(1, 7), st.integers(1, 150), st.integers(0, 9), st.integers(0, 60))
def test_it_says_what_scikit_learn_says(trees: int, leaf: int, seed: int, count: int) -> None:
    made, rows = fitted(trees, leaf, seed), made_rows(count, seed + 1)
    found = answers(forest_bytes(made), rows)
    expected: list[float] = made.predict(rows).tolist() if count else []
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-15)


@settings(max_examples=10)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), min_size=1, max_size=4))
def test_heads_that_are_walked_together_answer_as_each_alone(heads: list[tuple[int, int]]) -> None:
    files = [forest_bytes(fitted(trees, 2, trees)) for trees, _ in heads]
    inputs = [
        np.pad(made_rows(count, count), ((0, 0), (0, k))) for k, (_, count) in enumerate(heads)
    ]
    forest = Forest(
        *(read_trees("speed", f, i.shape[1]) for f, i in zip(files, inputs, strict=True))
    )
    assert forest(*inputs) == [answers(f, i) for f, i in zip(files, inputs, strict=True)]


def test_on_the_threshold_goes_left() -> None:
    data = file_of((1, 2.5), (LEAF, 10.0), (LEAF, 20.0))
    above = np.nextafter(np.float32(2.5), np.float32(9))
    rows = np.array([[9, 2.4], [9, 2.5], [0, above]], np.float32)
    assert answers(data, rows) == [10.0, 10.0, 20.0]


LEAVES = ((LEAF, 1.0), (LEAF, 2.0))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is cut off"),
        (b"no trees", "it is cut off"),
        (file_of((0, 1.0), *LEAVES)[:-1], "it is cut off"),
        (file_of((2, 1.0), *LEAVES), "its features go from -1 to 2, and 2 are known"),
        (file_of((-2, 1.0), *LEAVES), "its features go from -2 to -1"),
        (file_of((0, np.nan), *LEAVES), "not finite"),
        (file_of((0, np.inf), *LEAVES), "not finite"),
        (file_of((0, 1.0), (LEAF, LARGEST), (LEAF, 2 * LARGEST)), "an answer is beyond 50"),
        (file_of((0, 1.0)), "its 1 nodes are no trees"),
        (file_of((0, 1.0), (LEAF, 1.0)), "its 2 nodes are no trees"),
        (file_of((LEAF, 1.0), (0, 1.0), (LEAF, 1.0)), "its 3 nodes are no trees"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_are_no_trees_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(ModelError, match=why) as failed:
        read_trees("speed", data, 2)
    assert all(part in str(failed.value) for part in ("speed.trees", "advisor train"))


def test_trees_without_end_are_refused() -> None:
    steps = [(0, 1.0), *[(LEAF, 0.0), (0, 1.0)] * MOST_LEVELS, *LEAVES]
    with pytest.raises(ModelError, match="no trees of up to 500 levels"):
        read_trees("speed", file_of(*steps), 1)
    fewer = [(0, 1.0), *[(LEAF, 0.0), (0, 1.0)] * (MOST_LEVELS - 2), *LEAVES]
    assert answers(file_of(*fewer), np.full((1, 1), 2.0, np.float32)) == [2.0]


NODES = st.tuples(st.integers(-2, 3), st.sampled_from([0.0, 1.0, np.nan, 1e300]))


@given(st.lists(NODES, max_size=40).map(lambda nodes: file_of(*nodes)) | st.binary(max_size=300))
def test_any_file_is_refused_or_walked(data: bytes) -> None:
    try:
        found = answers(data, made_rows(20, 1)[:, :3])
    except ModelError:
        return
    assert all(abs(answer) <= LARGEST for answer in found)


# How far off jobs of families may be that nobody measured: worlds of those that were.


def around_one(count: int, seed: int) -> dict[str, Floats]:
    """Families, all equally near."""
    numbers = np.random.default_rng((count, seed)).normal(1.0, 0.3, count)
    return {f"family {n}": numbers[n : n + 1] for n in range(count)}


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3, 5, 12])
def test_families_hold_one_that_was_not_measured(count: int) -> None:
    """About four of five by themselves, however few they are; as they stand, a third to a half."""
    held = 0
    for week in range(200):
        near = around_one(count + 1, week)
        new = near.popitem()[1]
        errors = drawn_errors(near, near)
        low, high = np.quantile([errors(world) for world in range(40)], (0.05, 0.95))
        held += low <= new[0] <= high
    assert 0.72 <= held / 200 <= 0.93


def test_few_families_are_less_sure() -> None:
    """Student's t: of two families a third may be anywhere, of many it is as they are."""
    assert wider(2) == pytest.approx(6.314 / 1.645 * 3**0.5)
    numbers = [wider(n) for n in (2, 2.5, 3, 5, 8, 13)]
    assert numbers == sorted(numbers, reverse=True)
    assert wider(1000) == pytest.approx(1, abs=0.11)


def test_what_all_families_have_in_common_is_in_the_mean() -> None:
    near = around_one(12, 0)
    errors = drawn_errors(near, near)
    values = np.array([errors(world)[0] for world in range(2000)])
    assert values.mean() == pytest.approx(np.mean([*near.values()][:6]), abs=0.1)
    same = {name: np.array([0.4]) for name in near}
    assert drawn_errors(same, same)(7) == pytest.approx([0.4])


def test_servers_are_off_as_servers_are() -> None:
    """In each world; their profiles differ though one family alone is nearest to all of them."""
    window = SoloWindow(
        job="seen",
        gpu_model="NVIDIA H100 80GB HBM3",
        units_total=132,
        power_w=222.0,
        power_limit_w=700.0,
        clock_part=1.0,
        idle_power_w=70.0,
        memory_used_mib=4000.0,
        counters={"sm_active_percent": 22.0, "dram_active_percent": 5.0, "sm_clock_mhz": 1980.0},
    )
    for is_server in (False, True):
        guess = bundled_head().guesses(window, is_server=is_server)
        kept = [guess(world).values["rate"][0] for world in range(16)]
        assert len(set(kept)) >= 3
        assert 0 < min(kept) < max(kept) <= 1
        assert guess(3).values["sm_active_percent"].max() <= WHOLE
        np.testing.assert_array_equal(guess(3).values["rate"], guess(3).values["rate"])
