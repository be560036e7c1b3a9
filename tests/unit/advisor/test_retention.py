"""The bounds of what grows by itself, as the environment sets them."""

import math

import pytest

from advisor.errors import InputError
from advisor.settings import (
    AUDIT_DAYS,
    LAUNCH_DAYS,
    LAUNCH_GIB,
    OUTPUT_MIB,
    output_bytes,
    read_settings,
)


def test_without_a_word_there_are_bounds() -> None:
    found = read_settings({}).retention
    assert (found.launch_days, found.launch_gib, found.audit_days) == (90, 20, 365)
    assert output_bytes({}) == 32 * 2**20


def test_nought_is_no_bound() -> None:
    found = read_settings({LAUNCH_DAYS: "0", LAUNCH_GIB: "0", AUDIT_DAYS: "0"}).retention
    assert found.launch_days == found.launch_gib == found.audit_days == math.inf


def test_what_is_set_counts() -> None:
    found = read_settings({LAUNCH_DAYS: "0.5", OUTPUT_MIB: "10"}).retention
    assert (found.launch_days, found.output_mib) == (0.5, 10)
    assert output_bytes({OUTPUT_MIB: "10"}) == 5 * 2**20


@pytest.mark.parametrize("name", [LAUNCH_DAYS, LAUNCH_GIB, AUDIT_DAYS, OUTPUT_MIB])
@pytest.mark.parametrize("value", ["-1", "nan", "inf", "a week"])
def test_what_is_no_number_is_refused(name: str, value: str) -> None:
    with pytest.raises(InputError, match=f"{name} is {value}"):
        read_settings({name: value})
    with pytest.raises(InputError, match="2 or more"):
        read_settings({OUTPUT_MIB: "0"})
