"""What jobs could do at a share if there were always something to do. Pure.

A server (a job with a fixed demand) does what is asked of it, so its measured rate says little of
what it can: at most shares it serves everything and waits. How much of a GPU it can give up, and
what a neighbour takes of it, depends on its capacity. A neighbour slows the capacity, and what is
served is the lower one of capacity and demand (`advisor.predict.serving.Serving.served`).
"""

from collections.abc import Sequence

import numpy as np

from advisor.predict.profiles import Floats, Profile


def relative_capacity(profile: Profile, shares: Sequence[float] | Floats) -> Floats:
    """Rate that a job could reach alone at shares, for each one on the whole GPU; shape (n,).

    Where a server falls short of its demand, its rate is its capacity. Where it does not, its
    capacity is taken to grow with the share from the best rate per share at the share or below:
    it served that much there. The capacity of servers is near that up to half an H100 (8 % less at
    most, bert-serve-60 in data/advisor_data/bundled) and less than that beyond, where it is far
    above the demand. For other jobs it is the rate.

    Raises:
        InputError: a share lies outside the profile.
    """
    asked = np.asarray(shares, dtype=np.float64)
    rates = profile.at(asked)["rate"]
    serving = profile.serving
    if serving is None or serving.offered_rate is None:
        return rates / profile.whole_gpu_rate
    per_share = np.maximum.accumulate(profile.values["rate"] / profile.shares)
    below = np.searchsorted(profile.shares, asked, side="right") - 1
    is_short = rates < (1 - serving.tolerance) * serving.offered_rate
    could = np.maximum(rates, asked * per_share[below])
    return np.where(is_short, rates, could) / profile.whole_gpu_rate
