"""Power of matrix products by the data that they multiply (docs/input-power.md).

The question is that of Gregersen et al., "Input-Dependent Power Usage in GPUs" (2024).
"""

import dataclasses
import importlib.util

from advisor.core.job import Job
from advisor.errors import InputError, install
from advisor.formats.wire import write

# A node that profiles jobs without data needs no numpy: what does is imported where it is used.

SIDE = 4096
"""Of the matrices that are filled: measured inputs have it."""


def with_fingerprint(job: Job) -> Job:
    """The same job with the fingerprint of its data, so that its points have it.

    It is that of a product of `SIDE` that is filled as the job's file says.

    Raises:
        InputError: it says data without a type, products do not compute in it, the text is not of
            the input language, or a file of it cannot be read.
    """
    data, dtype = job.input.data, job.input.dtype
    if data is None:
        return job
    if dtype is None:
        raise InputError(
            f"input.data {data} is without a type",
            why="which bits switch depends on it",
            fix="say input.dtype, such as bf16",
        )
    if not importlib.util.find_spec("numpy"):
        raise InputError(
            "the data of a job cannot be looked at without numpy",
            fix=f"{install('advise')}, or leave input.data out of the job",
        )
    from advisor_power.data.operands import parse_operands, pinned, product_fingerprint

    found = product_fingerprint(pinned(parse_operands(data)), (SIDE, SIDE, SIDE), dtype)
    return dataclasses.replace(job, input_fingerprint=write(found))
