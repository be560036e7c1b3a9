"""Faults on the GPU that take neighbours down: a fault on an MPS server ends all its clients."""

import re
from collections.abc import Sequence

from advisor.core.wording import listed
from advisor.launch.monitor.job_monitor import JobMonitor
from advisor.launch.start.starting import end_jobs
from advisor.runtime.backends.backend import Backend
from advisor.runtime.host.processes import wait_until

_FAULT_S = 3.0
"""A fault on an MPS server reaches all its clients within this time."""

_FAULT_WORDS = re.compile(r"cuda|illegal memory access|unspecified launch failure|mps", re.I)
_SHARED_FAULT = (
    "a fault on the MPS server took {} down; which one caused it the driver does not tell. "
    "Jobs that fault must not share a GPU: run each alone to find it"
)
_OWN_FAULT = "a fault on the MPS server took {} down, which had the GPU for itself by then"


def is_fault(struck: Sequence[JobMonitor], backend: Backend) -> bool:
    """Whether one of these went down with its neighbours; waits until they show it."""
    if backend.mode != "mps":
        return False

    def all_gone() -> bool:
        return all(one.job.exit_code is not None for one in struck)

    if wait_until(lambda: backend.spoiled() or all_gone(), _FAULT_S, poll_s=0.1):
        # A server whose clients have all ended recovers at once, and shows nothing any more.
        return backend.spoiled() or (len(struck) > 1 and _all_speak_of_the_gpu(struck))
    return False


def take_down(struck: Sequence[JobMonitor]) -> None:
    """End those that a fault has struck.

    Raises:
        SurvivorsError: a process of one does not end.
    """
    names = listed(one.job.job.name for one in struck)
    fault = (_SHARED_FAULT if len(struck) > 1 else _OWN_FAULT).format(names)
    for one in struck:
        one.exit_code = one.job.exit_code
        said = f"; the end of its output:\n{one.job.tail() or '(nothing)'}"
        one.end("taken-down", "mps-fault", fault + said)
    end_jobs(one.job for one in struck)


def _all_speak_of_the_gpu(struck: Sequence[JobMonitor]) -> bool:
    return all(one.job.exit_code != 0 and _FAULT_WORDS.search(one.job.tail()) for one in struck)
