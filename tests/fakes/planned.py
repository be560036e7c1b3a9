"""Jobs, a GPU and points for tests of plans and blocks."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from store_points import point

from advisor.core.gpu import NINE, UNCAPPED, Gpu, Share, Split, units_for_percent
from advisor.core.job import Job, ProgressSettings
from advisor.core.records import PairPoint, SoloPoint
from advisor_data import open_store
from advisor_profiling.campaign.plan import PlannedWindows, all_pairs
from advisor_profiling.window import Target, pair

H200 = Gpu(uuid="GPU-1", model="NVIDIA H200", units_total=132, memory_mib=143_771)
MI300X = Gpu(uuid="GPU-2", model="AMD MI300X", vendor="amd", units_total=304, memory_mib=196_592)


def job(name: str, *, gate: bool = True, memory_mib: int | None = 1000) -> Job:
    return Job(
        name=name, command=(name,), progress=ProgressSettings(gate=gate), memory_mib=memory_mib
    )


def jobs(names: Iterable[str], **fields: Any) -> dict[str, Job]:
    return {name: job(name, **fields) for name in names}


def windows(
    members: Iterable[Job], splits: Iterable[Split] = (*NINE, UNCAPPED), *, selves: bool = True
) -> list[Target]:
    """All pairs of jobs at the splits, each once."""
    by_name = {member.name: member for member in members}
    splits = tuple(splits)
    return list(
        dict.fromkeys(
            pair(by_name[a], Share(split.shares[0]), by_name[b], Share(split.shares[1]))
            for a, b in all_pairs(by_name, selves=selves)
            for split in splits
        )
    )


def solo_point(name: str, rate: float = 100.0, **fields: Any) -> SoloPoint:
    values: dict[str, Any] = {"share_percent": 100.0, "run": "earlier", **fields}
    return point(job=name, rate=rate, **values)


def kept(folder: Path) -> list[PairPoint]:
    with open_store(None, folder) as store:
        return store.pair_points()


def shares_of(work: PlannedWindows) -> list[tuple[float, ...]]:
    return [tuple(spec.share.percent for spec in target.specs) for target in work.mps]


def units_of(work: PlannedWindows) -> list[tuple[int, ...]]:
    return [tuple(units_for_percent(p, 132) for p in both) for both in shares_of(work)]
