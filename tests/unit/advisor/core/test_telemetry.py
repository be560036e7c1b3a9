"""Channels: one name, one unit and one column each."""

from dataclasses import asdict, fields

from hypothesis import given
from hypothesis import strategies as st

from advisor.core.records import Counters, SoloPoint
from advisor.core.telemetry import COUNTERS, ENERGY_GPU, UNITS, channels_of, counters_of


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
