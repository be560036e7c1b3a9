"""The fingerprint of what a job says that its matrices hold."""

import functools
import importlib.util
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from advisor.core.job import InputData
from advisor.errors import InputError
from advisor.wire.input_power import InputFingerprint
from advisor.wire.requests import JobRequest

if TYPE_CHECKING:
    from advisor_profiling.operands.expression import OperandPair

# A node that profiles jobs without data needs no numpy: what does is imported where it is used.

SIDE = 4096
"""Of the matrices that are filled: measured inputs have it."""

_one_at_a_time = threading.Lock()
"""Matrices take memory, however many ask."""


@functools.lru_cache(maxsize=64)
def fingerprint_of(dtype: str, operands: str) -> InputFingerprint:
    """Of operands in the input language, filled into a product of `SIDE`.

    Raises:
        InputError: products do not compute in this type, the text is not of the language, or a
            file of it cannot be read.
    """
    _check_installed()
    from advisor_profiling.operands.fill import fill_pair
    from advisor_profiling.operands.fingerprint import features_of, fingerprint
    from advisor_profiling.operands.from_file import pinned
    from advisor_profiling.operands.grammar import parse_operands
    from advisor_profiling.operands.words import DTYPES

    if dtype not in DTYPES:
        raise InputError(
            f"products do not compute in {dtype}", fix=f"there are {', '.join(DTYPES)}"
        )
    pair = pinned(parse_operands(operands))
    a, b = fill_pair(pair, (SIDE, SIDE, SIDE), dtype)
    features = features_of(fingerprint(a.matrix, b.matrix, dtype))
    return InputFingerprint(dtype=dtype, operands=str(pair), features=features)


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
    """As `told_data`, for what somebody else sent: no files, and one request after the other.

    Raises:
        InputError: as `fingerprint_of`, or data name a file.
    """
    from advisor_profiling.operands.grammar import parse_operands

    for job in jobs:
        if job.data:
            check_no_file(parse_operands(job.data.operands))
    with _one_at_a_time:
        return told_data(jobs)


def check_no_file(pair: "OperandPair") -> None:
    """Refuse a file that somebody else names.

    Raises:
        InputError: an operand is from a file.
    """
    from advisor_profiling.operands.from_file import FILE

    if FILE in (pair.a.source.name, pair.b.source.name):
        raise InputError(
            "a file cannot be named here",
            why="it would be one of the service's own host",
            fix="send its fingerprint to /v1/power/input: features of advisor power tensor FILE "
            "--json",
        )


def _check_installed() -> None:
    if not importlib.util.find_spec("numpy"):
        raise InputError(
            "the data of a job cannot be looked at without numpy",
            fix="pip install 'sm-advisor[advise]', or leave input.data out of the job",
        )
