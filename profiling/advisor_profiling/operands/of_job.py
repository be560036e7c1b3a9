"""The fingerprint of what a job says that its matrices hold."""

import functools
import importlib.util
from collections.abc import Iterable, Sequence

from advisor.core.job import InputData
from advisor.errors import InputError
from advisor.wire.input_power import InputFingerprint
from advisor.wire.requests import JobRequest

# A node that profiles jobs without data needs no numpy: what does is imported where it is used.

SIDE = 4096
"""Of the matrices that are filled: measured inputs have it."""


@functools.lru_cache(maxsize=64)
def fingerprint_of(dtype: str, operands: str) -> InputFingerprint:
    """Of operands in the input language, filled into a product of `SIDE`.

    Raises:
        InputError: products do not compute in this type, the text is not of the language, or a
            file of it cannot be read.
    """
    _check_installed()
    from advisor_profiling.operands.from_file import pinned
    from advisor_profiling.operands.grammar import parse_operands
    from advisor_profiling.operands.of_product import product_fingerprint

    return product_fingerprint(pinned(parse_operands(operands)), (SIDE, SIDE, SIDE), dtype)


def input_fingerprint(data: InputData) -> InputFingerprint | None:
    """What a job's file says of its data; None: it says nothing.

    Raises:
        InputError: it says data without a type, or as `fingerprint_of`.
    """
    if data.data is None:
        return None
    if data.dtype is None:
        raise InputError(
            f"input.data {data.data} is without a type",
            why="which bits switch depends on it",
            fix="say input.dtype, such as bf16",
        )
    return fingerprint_of(data.dtype, data.data)


def told_data(jobs: Iterable[JobRequest]) -> dict[str, InputFingerprint]:
    """By name, the data of jobs that say what will run.

    Raises:
        InputError: as `fingerprint_of`.
    """
    told = ((job.job, job.data) for job in jobs if job.data)
    return {name: fingerprint_of(data.dtype, data.operands) for name, data in told}


def sent_data(jobs: Sequence[JobRequest]) -> dict[str, InputFingerprint]:
    """As `told_data`, for what somebody else sent: no files, and one after the other.

    Raises:
        InputError: as `fingerprint_of`, or data name a file.
    """
    from advisor_profiling.operands.grammar import parse_operands
    from advisor_profiling.operands.of_product import ONE_AT_A_TIME, check_no_file

    for job in jobs:
        if job.data:
            check_no_file(parse_operands(job.data.operands))
    with ONE_AT_A_TIME:
        return told_data(jobs)


def _check_installed() -> None:
    if not importlib.util.find_spec("numpy"):
        raise InputError(
            "the data of a job cannot be looked at without numpy",
            fix="pip install 'sm-advisor[advise]', or leave input.data out of the job",
        )
