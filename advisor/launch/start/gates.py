"""Opens the gates of jobs that start together."""

import time
from collections.abc import Sequence

from advisor.runtime.jobs.running_job import RunningJob

_LEAST_S, _MOST_S = 0.037, 0.4
"""Between two copies. Of short steps any time that is no multiple of a step does; the last of seven
begins before the first seconds are over, which no mean is of."""


def open_gates(jobs: Sequence[RunningJob], solo_rates: Sequence[float | None]) -> None:
    """Open all; those of further copies of a job follow, each a part of a step later.

    Copies that begin their steps at one moment would ask for the same part of the GPU at the same
    moments: whatever alternates in a step, such as waiting for input and computing, stays in step
    where nothing else disturbs them.

    Args:
        jobs: Ready.
        solo_rates: Steps per second of each alone; where its unit is not a step, but something that
            a step has many of, the time is shorter than it should be.
    """
    names = [job.job.name for job in jobs]
    ranks = [names[:n].count(name) for n, name in enumerate(names)]
    for rank in range(max(ranks) + 1):
        late = [n for n, of in enumerate(ranks) if of == rank]
        if rank:
            steps_s = [1 / (solo_rates[n] or 1 / _LEAST_S) / names.count(names[n]) for n in late]
            time.sleep(min(_MOST_S, max(_LEAST_S, *steps_s)))
        for n in late:
            jobs[n].go()
