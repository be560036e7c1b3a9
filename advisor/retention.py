"""How much is kept of what grows by itself: launch folders, the output of jobs, the audit log."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from advisor.errors import InputError

LAUNCH_DAYS, LAUNCH_GIB = "ADVISOR_KEEP_LAUNCHES_DAYS", "ADVISOR_KEEP_LAUNCHES_GIB"
AUDIT_DAYS, OUTPUT_MIB = "ADVISOR_KEEP_AUDIT_DAYS", "ADVISOR_OUTPUT_MIB"

LEAST_OUTPUT_MIB = 2.0
"""Of less, a job that is counted by its output might have written over what was not read yet."""

_DEFAULTS = {LAUNCH_DAYS: 90.0, LAUNCH_GIB: 20.0, AUDIT_DAYS: 365.0, OUTPUT_MIB: 64.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Bounds; infinite where there is none.

    Attributes:
        launch_days: `ADVISOR_KEEP_LAUNCHES_DAYS`: folders of launches that ended longer ago are
            removed; 0: never.
        launch_gib: `ADVISOR_KEEP_LAUNCHES_GIB`: where the folders of launches that have ended take
            more, the oldest are removed; 0: never.
        audit_days: `ADVISOR_KEEP_AUDIT_DAYS`: older entries of the audit log are removed; 0: never.
        output_mib: `ADVISOR_OUTPUT_MIB`: the newest output that is kept of each job.
    """

    launch_days: float
    launch_gib: float
    audit_days: float
    output_mib: float


def read_retention(environment: Mapping[str, str]) -> Retention:
    """The bounds that the environment sets.

    Raises:
        InputError: one is no number, or out of its range.
    """
    return Retention(
        launch_days=_bound(environment, LAUNCH_DAYS),
        launch_gib=_bound(environment, LAUNCH_GIB),
        audit_days=_bound(environment, AUDIT_DAYS),
        output_mib=_output_mib(environment),
    )


def output_bytes(environment: Mapping[str, str]) -> int:
    """What each of the two files of a job's output may take (advisor/runtime/jobs/shim.py).

    Raises:
        InputError: the environment has no such size.
    """
    return int(_output_mib(environment) * 2**20 / 2)


def _output_mib(environment: Mapping[str, str]) -> float:
    size = _number(environment, OUTPUT_MIB)
    if size < LEAST_OUTPUT_MIB:
        raise _refused(environment, OUTPUT_MIB, f"a size in MiB, {LEAST_OUTPUT_MIB:g} or more")
    return size


def _bound(environment: Mapping[str, str], name: str) -> float:
    return _number(environment, name) or math.inf


def _number(environment: Mapping[str, str], name: str) -> float:
    given = environment.get(name)
    try:
        number = float(given) if given else _DEFAULTS[name]
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise _refused(environment, name, "0 (no bound) or a number above it")
    return number


def _refused(environment: Mapping[str, str], name: str, wanted: str) -> InputError:
    return InputError(
        f"{name} is {environment.get(name)}",
        why=f"it is {wanted}",
        fix=f"set it to such a number, or unset it: {_DEFAULTS[name]:g}",
    )
