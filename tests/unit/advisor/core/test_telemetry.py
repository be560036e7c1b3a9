"""Channels: one name, one unit and one column each."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.gpu import Gpu
from advisor.core.records import Counters, SoloPoint
from advisor.core.telemetry import (
    COUNTERS,
    ENERGY_GPU,
    MEMORY_USED,
    POWER_GPU,
    UNITS,
    ReadingGate,
    channels_of,
    counters_of,
    power_scope,
)


def test_every_column_of_counters_is_a_channel_with_its_unit() -> None:
    columns = {field.name: field for field in fields(SoloPoint)}
    assert set(COUNTERS.values()) == {field.name for field in fields(Counters)}
    for name, column in COUNTERS.items():
        assert UNITS[name] == columns[column].metadata["unit"]
    assert (COUNTERS["counter.sm_active"], COUNTERS["counter.nvlink_tx"]) == (
        "sm_active_percent",
        "nvlink_tx_mib_per_s",
    )


@given(st.dictionaries(st.sampled_from(sorted(COUNTERS)), st.none() | st.floats(0, 100)))
def test_readings_become_columns(readings: dict[str, float | None]) -> None:
    found = asdict(counters_of({**readings, "power.gpu": 5.0}))
    assert found == {column: readings.get(name) for name, column in COUNTERS.items()}


def test_kinds_of_channels() -> None:
    kinds = {channel.name: channel.kind for channel in channels_of(UNITS)}
    assert {name for name, kind in kinds.items() if kind == "total"} == {ENERGY_GPU}
    assert {name for name, kind in kinds.items() if kind == "mean"} == set(COUNTERS)


CARD = Gpu(uuid="GPU-1", model="NVIDIA H200", power_limit_w=700.0, memory_mib=143_771)


@pytest.mark.parametrize(
    ("name", "value", "passes"),
    [
        (POWER_GPU, 1050.0, True),
        (POWER_GPU, 1051.0, False),
        (POWER_GPU, -1.0, False),
        (POWER_GPU, math.nan, False),
        (MEMORY_USED, 143_771.0, True),
        (MEMORY_USED, 2.0**32 - 1, False),
        ("counter.sm_active", 100.4, True),
        ("counter.sm_active", 4e9, False),
        ("counter.nvlink_tx", 900_000.0, True),
        ("clock.memory", 14_001.0, True),
        ("clock.sm", 2.0**31, False),
        ("temperature.gpu", 0.0, True),
        (ENERGY_GPU, math.inf, False),
    ],
)
def test_what_a_card_cannot_read_is_not_read(name: str, value: float, passes: bool) -> None:
    gate = ReadingGate(CARD, lambda: 700.0)
    found = gate.sift({name: value, "power.memory": 80.0, "power.limit": None})
    assert found == {name: value if passes else None, "power.memory": 80.0, "power.limit": None}
    assert bool(gate.left_out) is not passes


def test_a_limit_that_is_none_bounds_nothing() -> None:
    """The largest card's does."""
    unknown = ReadingGate(Gpu(uuid="x", model="y", power_limit_w=7.5e8), lambda: 7.5e8)
    assert [unknown.sift({POWER_GPU: w})[POWER_GPU] for w in (1900.0, 3.7e6)] == [1900.0, None]


@pytest.mark.parametrize(
    ("raw_j", "found_j", "step_s", "said"),
    [
        # A number from elsewhere, up or down, costs itself alone.
        ((1000, 1500, 9e12, 2500, 3000), (1000, 1500, None, 2500, 3000), 1, True),
        ((1000, 1500, 0, 2500, 3000), (1000, 1500, None, 2500, 3000), 1, True),
        ((1000, 9e12, 4e12, 2500, 3000), (1000, None, None, 2500, 3000), 1, True),
        # A driver that was loaded again counts from nothing, which is no impossible reading.
        ((90_000, 10, 600, 1200), (90_000, None, 600, 1200), 1, False),
        # A total that stays far above begins again: the jump is never added.
        ((90_000, 9e12, 9e12 + 600, 9e12 + 900), (90_000, None, 600, 900), 1, False),
        ((9e12, 1000, 1600, 2000), (9e12, None, 1600, 2000), 1, False),
        # It is believed after a long silence.
        ((0, 2.5e6), (0, 2.5e6), 3600, False),
    ],
)
def test_a_counter_cannot_jump(
    raw_j: Sequence[float], found_j: Sequence[float | None], step_s: int, said: bool
) -> None:
    gate = ReadingGate(CARD, lambda: 700.0, itertools.count(0, step_s).__next__)
    assert [gate.sift({ENERGY_GPU: value})[ENERGY_GPU] for value in raw_j] == [*found_j]
    assert bool(gate.left_out) is said


def test_impossible_readings_are_counted_and_said(caplog: pytest.LogCaptureFixture) -> None:
    """Said when there are one, ten, a hundred: a sensor that is broken fills no log."""
    gate = ReadingGate(CARD, lambda: 700.0)
    for _ in range(25):
        gate.sift({POWER_GPU: 3.7e6})
    said = "25 impossible readings left out, such as power.gpu of 3,700,000 W (at most 1,050)"
    assert gate.left_out == said
    assert [record.getMessage()[:9] for record in caplog.records] == [
        "GPU-1: 1 ", "GPU-1: 10",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "energy_j", "power_w"),
    [
        ("NVIDIA GH200 480GB", None, 80.0),
        ("AMD Instinct MI250X", None, None),
        ("NVIDIA H200", 5.0, 80.0),
    ],
)
def test_what_is_of_more_than_the_gpu_is_withheld(
    model: str, energy_j: float | None, power_w: float | None
) -> None:
    gate = ReadingGate(Gpu(uuid="x", model=model), lambda: None)
    found = gate.sift({ENERGY_GPU: 5.0, POWER_GPU: 80.0})
    assert found == {ENERGY_GPU: energy_j, POWER_GPU: power_w}
    assert bool(power_scope(model)[1]) == (energy_j is None)
    assert gate.left_out == ""
