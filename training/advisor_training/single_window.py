"""Learns how jobs do on parts of a GPU from one window on the whole of it.

From jobs that were measured at several shares, all but the whole GPU hidden. Differences to
`advisor_models.single_window.prior_kept` are learned, not their logarithms: at small shares of
small jobs these are large, and matter little.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from advisor.core.gpu import WHOLE
from advisor.core.records import SoloPoint
from advisor.formats.wire import read, to_plain
from advisor.predict.profiles import Floats, Profile, kind_of
from advisor_models.registry import hashes, trees_file, write_parsed
from advisor_models.single_window import (
    COUNTERS,
    ERRORS,
    ESTIMATED_SHARES,
    HEADS,
    SM,
    LeftOutJob,
    SingleWindowHead,
    SingleWindowManifest,
    SoloWindow,
    WindowEstimate,
    as_float32,
    counter_features,
    prior_kept,
    share_features,
    window_of,
)
from advisor_training.learners import family_of
from advisor_training.train import LIBRARIES, dataset_sha256, forest_bytes, write_into

TREES, LEAST_IN_LEAF, SEED = 60, 3, 0
"""As many trees as the heads of pairs have; a profile has few rows, so leaves are smaller."""


def learnable(profiles: Iterable[Profile]) -> list[Profile]:
    """Those whose counters are known, so that they say something."""
    return [p for p in profiles if not any(np.isnan(p.values[name][-1]) for name in COUNTERS)]


def fit_single_window(profiles: Sequence[Profile]) -> Mapping[str, bytes]:
    """The trees of each head of `SingleWindowHead`, from profiles that are `learnable`."""
    forests: dict[str, bytes] = {}
    for head in HEADS:
        rows = [_rows(profile, head) for profile in profiles]
        features, targets = (np.concatenate(of_all) for of_all in zip(*rows, strict=True))
        trees: Any = ExtraTreesRegressor(TREES, min_samples_leaf=LEAST_IN_LEAF, random_state=SEED)
        forests[head] = forest_bytes(trees.fit(as_float32(features), targets))
    return forests


def _rows(profile: Profile, head: str) -> tuple[Floats, Floats]:
    """Features and targets: SM activity as a fraction; of others what was kept over the prior."""
    if head == SM:
        return counter_features(window_of(profile)), profile.values[head][-1:] / WHOLE
    features, prior, kept = _kept(profile)
    return features, kept[head] - prior


def write_single_window(
    folder: Path, profiles: Sequence[Profile], points: Iterable[SoloPoint]
) -> None:
    """Fit the model to profiles that are `learnable`, made from these points, and write it.

    Raises:
        StoreError: it cannot be written.
    """
    files = {trees_file(name): data for name, data in fit_single_window(profiles).items()}
    errors = {"left_out": [*_left_out_errors(profiles)]}
    files[ERRORS] = json.dumps(to_plain(errors), separators=(",", ":")).encode() + b"\n"
    manifest = SingleWindowManifest(
        profiles=len(profiles),
        dataset_sha256=dataset_sha256(points),
        libraries={name: version(name) for name in LIBRARIES},
        files=hashes(files),
    )

    write_into(
        folder,
        lambda to: write_parsed(
            to, files, manifest, lambda _, text: read(SingleWindowManifest, text)
        ),
    )


def left_out(profiles: Sequence[Profile]) -> Iterator[tuple[SingleWindowHead, list[Profile]]]:
    """For each family of jobs the model that has seen none of it, and its profiles."""
    families = np.array([family_of(p.job) for p in profiles])
    for family in dict.fromkeys(families.tolist()):
        others = [
            p for p, of_profile in zip(profiles, families, strict=True) if of_profile != family
        ]
        tested = [
            p for p, of_profile in zip(profiles, families, strict=True) if of_profile == family
        ]
        yield SingleWindowHead(fit_single_window(others)), tested


def _left_out_errors(profiles: Sequence[Profile]) -> Iterator[LeftOutJob]:
    """Of each by the model that has seen none of its family, with and without counters."""
    for model, tested in left_out(profiles):
        for p in tested:
            for missing in ((), COUNTERS):
                window = blind(window_of(p), missing)
                estimate = model.estimate(window)
                errors = _errors(p, estimate)
                yield LeftOutJob(
                    family=family_of(p.job),
                    is_server=kind_of(p) == "server",
                    missing=missing,
                    sm=round(estimate.sm, 4),
                    part_of_power=round(window.part_of_power, 4),
                    errors=tuple(errors.round(4).tolist()),
                )


def blind(window: SoloWindow, lacking: Sequence[str]) -> SoloWindow:
    """The same without these counters."""
    return replace(window, counters={n: v for n, v in window.counters.items() if n not in lacking})


def _errors(profile: Profile, estimate: WindowEstimate) -> Floats:
    """True less told; where nothing was measured, as at the nearest share that was."""
    window, (_, _, kept) = window_of(profile), _kept(profile)
    sm, dram = (window.read(name) / WHOLE for name in COUNTERS)
    shares = profile.shares[:-1]
    of_shares = [
        np.interp(
            ESTIMATED_SHARES, shares, kept[of] - np.interp(shares, ESTIMATED_SHARES, estimated)
        )
        for of, estimated in (("rate", estimate.rate), ("power", estimate.power))
    ]
    return np.concatenate([[sm - estimate.sm, dram - estimate.dram], *of_shares])


def _kept(profile: Profile) -> tuple[Floats, Floats, dict[str, Floats]]:
    """Features at each share that was measured, the prior there, and what was kept."""
    window = window_of(profile)
    sm, dram = (window.read(name) / WHOLE for name in COUNTERS)
    shares = profile.shares[:-1].tolist()
    over_w = profile.values["power_w"][:-1] - profile.idle_power_w
    kept = {
        "rate": np.minimum(1.0, profile.values["rate"][:-1] / profile.values["rate"][-1]),
        "power": over_w / (window.power_w - window.idle_power_w),
    }
    return share_features(window, sm, dram, shares), prior_kept(sm, shares), kept
