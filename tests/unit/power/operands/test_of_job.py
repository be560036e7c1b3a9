"""The fingerprint of what a job's file says that its matrices hold."""

import dataclasses

import pytest

from advisor.core.job import InputData, Job
from advisor.errors import InputError
from advisor.formats.wire import read_tolerant, write
from advisor.wire.power import FEATURES, InputFingerprint
from advisor_power.data.of_job import input_fingerprint, with_fingerprint

QUIET = Job(name="a", command=("a",), input=InputData(dtype="bf16"))


def test_job_that_says_nothing_keeps_its_identity() -> None:
    """That of before it could be said."""
    assert QUIET.job_hash == "3b05c91d3bcd6a3c"
    assert with_fingerprint(QUIET) is QUIET


def test_job_that_says_its_data_has_a_fingerprint() -> None:
    telling = dataclasses.replace(QUIET, input=InputData(dtype="bf16", data="zeros"))
    assert telling.job_hash != QUIET.job_hash
    found = input_fingerprint(telling.input)
    assert found is not None
    assert set(found.features) == set(FEATURES)
    assert (found.dtype, found.features["a_zeros"], found.features["a_weight"]) == (
        "bf16",
        1.0,
        0.0,
    )
    assert read_tolerant(InputFingerprint, write(found)) == found
    assert with_fingerprint(telling).input_fingerprint == write(found)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (InputData(data="zeros"), "without a type"),
        (InputData(dtype="bf17", data="zeros"), "do not compute in bf17"),
        (InputData(dtype="bf16", data="nonsense(1)"), "nonsense"),
        (InputData(dtype="bf16", data='file("none.npy")'), "none.npy"),
    ],
)
def test_data_that_cannot_be_meant(data: InputData, said: str) -> None:
    with pytest.raises(InputError, match=said):
        input_fingerprint(data)
