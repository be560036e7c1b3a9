"""The record of a card's power sensors: kept, read back and found."""

import dataclasses
from pathlib import Path

import pytest
from made_up_kernel import INSTANT, record

from advisor.errors import StoreError
from advisor.validity.sensor_record import (
    SENSOR_RECORDS,
    keep_record,
    record_for,
)

RECORD = record(gpu_model="NVIDIA H100 80GB HBM3", driver="580.1")


def test_record_is_read_back_as_it_was_kept(tmp_path: Path) -> None:
    keep_record(RECORD, tmp_path)
    assert SENSOR_RECORDS.read(tmp_path) == [RECORD]
    assert INSTANT.settle_s == pytest.approx(0.037)
    assert RECORD.channel("memory") is None


def test_each_card_and_driver_has_its_own_file(tmp_path: Path) -> None:
    newer = dataclasses.replace(RECORD, driver="590.0")
    keep_record(RECORD, tmp_path)
    keep_record(newer, tmp_path)
    assert SENSOR_RECORDS.read(tmp_path) == [RECORD, newer]


def test_record_of_another_driver_is_not_used() -> None:
    other_card = dataclasses.replace(RECORD, gpu_uuid="GPU-2")
    found = [other_card, RECORD]
    assert record_for("GPU-1", RECORD.gpu_model, "580.1", found) == RECORD
    assert record_for("GPU-3", RECORD.gpu_model, "580.1", found) == other_card
    assert record_for("GPU-1", RECORD.gpu_model, "590.0", found) is None


@pytest.mark.parametrize("text", ["", "{}", '{"channels": 3}'])
def test_broken_record_says_what_to_do(tmp_path: Path, text: str) -> None:
    path = SENSOR_RECORDS.path(tmp_path, "GPU-1", "580.1")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(StoreError, match="not a result of"):
        SENSOR_RECORDS.read(tmp_path)


def test_impossible_window_is_refused(tmp_path: Path) -> None:
    wrong = dataclasses.replace(RECORD, channels=(dataclasses.replace(INSTANT, window_ms=0.0),))
    keep_record(wrong, tmp_path)
    with pytest.raises(StoreError, match="instant"):
        SENSOR_RECORDS.read(tmp_path)
