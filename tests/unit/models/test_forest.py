"""Trees as plain numbers: what scikit-learn says, and what no file can do."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import ExtraTreesRegressor

from advisor.errors import ModelError
from advisor.predict.features import Float32s
from advisor_models.model_predictor import LARGEST, LEAF, MOST_LEVELS, NODE, Forest, read_trees
from advisor_training.train import forest_bytes

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
