"""How much SM activity sets with servers may want, so that their servers keep their floors.

All jobs of a set use `BUSIEST` of the SMs together at most, and who wants little gets that first
(`set_law.room_in`). So each job must be able to get as much as the server that needs most. No job
counts for more than that, and the one that wants most for all of it.
"""

import numpy as np

from advisor.place.options import Ints
from advisor.predict.profiles import Floats
from advisor.predict.set_law import BUSIEST
from advisor.predict.sets import JobsAlone

SURE = 1e-7
"""Of the SMs, is none."""


class Busy:
    """Of jobs that join sets, each kind with those after it."""

    def __init__(self, alone: JobsAlone, must_have: Floats, joining: Ints) -> None:
        """`must_have` of the SMs each job must be able to get beside a server, 0 for others."""
        self._wanted, self._must_have = alone.wanted, must_have
        self._own, self._of_joining = self._wanted[joining, 0], must_have[joining, 0]
        least = must_have.min(initial=np.inf, where=must_have > 0)
        counts = np.maximum(np.minimum(self._own, least), SURE)
        self._for_each = _from_each_on(np.append(alone.sm[joining, 0] / counts, 1.0))
        self._most = _from_each_on(np.append(self._own, 0.0))

    def with_one_more(self, seats: tuple[Ints, Ints], sm: Floats) -> Floats:
        """The most activity of sets with each job, and any after it; `sm` is what they want so far.

        Minus infinity where a server cannot keep its floor, infinite without one; as `sm`, shape
        (sets, joining).
        """
        must_have = np.maximum(self._must_have[seats].max(axis=1)[:, None], self._of_joining)
        counted = np.minimum(self._wanted[seats][:, None], must_have[..., None]).sum(axis=-1)
        counted += np.minimum(self._own, must_have)
        top = np.maximum(self._wanted[seats].max(axis=1)[:, None], self._most[:-1])
        return _until(sm, must_have, counted, top, self._for_each[:-1])

    def with_servers(
        self, seats: tuple[Ints, Ints], sm: Floats, last: Ints, servers: int, more: int
    ) -> Floats:
        """The same of sets with so many more of the servers, and any other job; shape (sets,)."""
        must_have, wanted = self._must_have[seats].max(axis=1), self._wanted[seats]
        if more:
            must_have = np.maximum(must_have, self._of_joining[:servers].min())
        counted = np.minimum(wanted, must_have[:, None]).sum(axis=1)
        counted += more * np.minimum(self._own[:servers].min(initial=np.inf), must_have)
        top = np.maximum(wanted.max(axis=1), self._most[last])
        return _until(sm, must_have, counted, top, self._for_each[np.maximum(last, servers)])


def _until(sm: Floats, must_have: Floats, counted: Floats, top: Floats, for_each: Floats) -> Floats:
    """`for_each` is the activity of those who may yet join for each 1 that they count for."""
    left = BUSIEST.value - counted - np.maximum(0.0, must_have - top)
    until = np.where(left >= -SURE, sm + np.maximum(0.0, left) * for_each, -np.inf)
    return np.where(must_have > 0, until, np.inf)


def _from_each_on(values: Floats) -> Floats:
    most: Floats = np.maximum.accumulate(values[::-1])[::-1]
    return most
