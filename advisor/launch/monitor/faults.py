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
_KNOWN_FAULT = (
    "a fault of {} took {} down with it: the log of the MPS server names its process {}. {} "
    "must not share a GPU before that is mended; run it alone to find it"
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


def take_down(struck: Sequence[JobMonitor], backend: Backend) -> None:
    """End those that a fault has struck; who caused it has failed, where that is known.

    Raises:
        SurvivorsError: a process of one does not end.
    """
    guilty, fault = _author(struck, backend)
    for one in struck:
        one.exit_code = one.job.exit_code
        said = f"; the end of its output:\n{one.job.tail() or '(nothing)'}"
        one.end("failed" if one is guilty else "taken-down", "mps-fault", fault + said)
    end_jobs(one.job for one in struck)


def _author(struck: Sequence[JobMonitor], backend: Backend) -> tuple[JobMonitor | None, str]:
    """Who caused a fault, None where nobody can tell, and what is said of it.

    Only a log that names processes of one job and of no other is evidence.
    """
    names = listed(one.job.job.name for one in struck)
    if len(struck) == 1:
        return None, _OWN_FAULT.format(names)
    blamed = backend.blamed()
    found = [one for one in struck if one.pids & blamed]
    if len(found) != 1:
        return None, _SHARED_FAULT.format(names)
    guilty = found[0]
    name, pid = guilty.job.job.name, min(guilty.pids & blamed)
    others = listed(one.job.job.name for one in struck if one is not guilty)
    return guilty, _KNOWN_FAULT.format(name, others, pid, name)


def _all_speak_of_the_gpu(struck: Sequence[JobMonitor]) -> bool:
    return all(one.job.exit_code != 0 and _FAULT_WORDS.search(one.job.tail()) for one in struck)
