"""The fingerprint of what a job says that its matrices hold."""

import dataclasses
import functools
import importlib.util
from collections.abc import Callable, Mapping

from advisor.core.job import InputData, Job
from advisor.errors import InputError
from advisor.formats.wire import write
from advisor.wire.input_power import InputFingerprint
from advisor.wire.requests import JobData

# A node that profiles jobs without data needs no numpy: what does is imported where it is used.

SIDE = 4096
"""Of the matrices that are filled: measured inputs have it."""

MOST_SENT = 8
"""Kinds of data in one request of somebody else."""


@functools.lru_cache(maxsize=64)
def fingerprint_of(dtype: str, operands: str) -> InputFingerprint:
    """Of operands in the input language, filled into a product of `SIDE`.

    Raises:
        InputError: products do not compute in this type, the text is not of the language, or a
            file of it cannot be read.
    """
    _check_installed()
    from advisor_power.operands.from_file import pinned
    from advisor_power.operands.grammar import parse_operands
    from advisor_power.operands.of_product import product_fingerprint

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


def with_fingerprint(job: Job) -> Job:
    """The same job with the fingerprint of its data, so that its points have it.

    Raises:
        InputError: as `input_fingerprint`.
    """
    found = input_fingerprint(job.input)
    return job if found is None else dataclasses.replace(job, input_fingerprint=write(found))


def told_data(
    data: Mapping[str, JobData], on_progress: Callable[[int, int], None] = lambda done, kinds: None
) -> dict[str, InputFingerprint]:
    """By name of job, the fingerprint of what will run.

    Args:
        data: Of the jobs that say so.
        on_progress: Called after each one with those done and all.

    Raises:
        InputError: as `fingerprint_of`.
    """
    found: dict[str, InputFingerprint] = {}
    for name, told in data.items():
        found[name] = fingerprint_of(told.dtype, told.operands)
        on_progress(len(found), len(data))
    return found


def sent_data(data: Mapping[str, JobData]) -> dict[str, InputFingerprint]:
    """As `told_data`, for what somebody else sent: few of them, no files, one after the other.

    Raises:
        InputError: as `fingerprint_of`, or these are too many, or data name a file.
    """
    if not data:
        return {}
    from advisor_power.operands.grammar import parse_operands
    from advisor_power.operands.of_product import ONE_AT_A_TIME, check_no_file

    if (count := len(set(data.values()))) > MOST_SENT:
        raise InputError(
            f"these are {count} kinds of data",
            why=f"filling one takes seconds, so at most {MOST_SENT} are taken",
            fix="tell the data of fewer jobs, or ask at the command line",
        )
    for told in data.values():
        check_no_file(parse_operands(told.operands))
    with ONE_AT_A_TIME:
        return told_data(data)


def _check_installed() -> None:
    if not importlib.util.find_spec("numpy"):
        raise InputError(
            "the data of a job cannot be looked at without numpy",
            fix="pip install 'sm-advisor[advise]', or leave input.data out of the job",
        )
