"""Stops several jobs in the safe order."""

from collections.abc import Iterable
from typing import Protocol

from advisor.errors import AdvisorError


class Stoppable(Protocol):
    """Something that runs on a GPU next to others."""

    def leave(self) -> None:
        """Ask it to leave; returns at once."""
        ...

    def stop(self) -> None:
        """End it and wait until it has ended."""
        ...


def stop_all(jobs: Iterable[Stoppable]) -> list[AdvisorError]:
    """Stop jobs in the safe order: all are asked to leave before the first is waited for.

    Returns:
        What went wrong on the way; the jobs have ended nevertheless, but for a SurvivorsError.
    """
    waiting, errors = list(jobs), list[AdvisorError]()
    for job in waiting:
        job.leave()
    try:
        while waiting:
            try:
                waiting.pop(0).stop()
            except AdvisorError as error:
                errors.append(error)
    finally:
        # Interrupted: the others are stopped all the same.
        if waiting:
            stop_all(waiting)
    return errors
