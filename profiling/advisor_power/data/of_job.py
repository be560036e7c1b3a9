"""The fingerprint of what a job's file says that its matrices hold."""

import dataclasses
import importlib.util

from advisor.core.job import InputData, Job
from advisor.errors import InputError, install
from advisor.formats.wire import write
from advisor.wire.power import InputFingerprint

# A node that profiles jobs without data needs no numpy: what does is imported where it is used.

SIDE = 4096
"""Of the matrices that are filled: measured inputs have it."""


def with_fingerprint(job: Job) -> Job:
    """The same job with the fingerprint of its data, so that its points have it."""
    fingerprint = input_fingerprint(job.input)
    return (
        job
        if fingerprint is None
        else dataclasses.replace(job, input_fingerprint=write(fingerprint))
    )


def input_fingerprint(data: InputData) -> InputFingerprint | None:
    """Of a product of `SIDE` that is filled as a job's file says; None: it says nothing.

    Raises:
        InputError: it says data without a type, products do not compute in it, the text is not of
            the input language, or a file of it cannot be read.
    """
    if data.data is None:
        return None
    if data.dtype is None:
        raise InputError(
            f"input.data {data.data} is without a type",
            why="which bits switch depends on it",
            fix="say input.dtype, such as bf16",
        )
    if not importlib.util.find_spec("numpy"):
        raise InputError(
            "the data of a job cannot be looked at without numpy",
            fix=f"{install('advise')}, or leave input.data out of the job",
        )
    from advisor_power.data.operands import parse_operands, pinned, product_fingerprint

    return product_fingerprint(pinned(parse_operands(data.data)), (SIDE, SIDE, SIDE), data.dtype)
