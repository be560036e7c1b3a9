"""What really happens on a GPU: measured pairs, jobs alone, and idle power. No model is asked.

Two kinds of jobs share a GPU only where that pair was measured on that GPU model, at shares at
which it was measured. Nothing is known of other pairs, so no policy may use them.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from advisor.core.finish import Rest

WHOLE = 100.0
"""Share of a job without a limit: two of them are `uncapped`."""

Shares = tuple[float, float]
Kinds = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Way:
    """Two jobs on one GPU: relative speed of each, and the power of the GPU."""

    speeds: tuple[float, float]
    power_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """All that is true of one GPU model.

    Attributes:
        alone: What a job does alone at a share, by its kind and the share.
        ways: By kinds and shares; both orders of two kinds are there.
        measured_as: Number of the measurement in the data that a pair's ways are of.
    """

    gpu_model: str
    idle_power_w: float
    alone: Mapping[tuple[str, float], Rest]
    ways: Mapping[Kinds, Mapping[Shares, Way]]
    measured_as: Mapping[Kinds, int]

    @property
    def kinds(self) -> list[str]:
        """Kinds of jobs, sorted: those of the measured pairs."""
        return sorted({kind for pair in self.ways for kind in pair})


def drifted(site: Site, kinds: Collection[str], factor: float) -> Site:
    """The same site, where some kinds of jobs are slower beside others; the power stays."""

    def changed(pair: Kinds, way: Way) -> Way:
        a, b = (s * (factor if k in kinds else 1) for s, k in zip(way.speeds, pair, strict=True))
        return replace(way, speeds=(a, b))

    ways = {
        pair: {shares: changed(pair, way) for shares, way in known.items()}
        for pair, known in site.ways.items()
    }
    return replace(site, ways=ways)
