"""The predictor that is served: a model's trees between the features and the predictions."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from advisor.core.gpu import ADVISED_JOBS, Split, check_advised
from advisor.errors import InputError, ModelError
from advisor.predict.features import Side, feature_names_of, side
from advisor.predict.predictions import (
    AskedPair,
    ExpectedPair,
    Predictions,
    possible_speeds,
    solo_of,
)
from advisor.predict.profiles import (
    COLUMNS,
    NEEDED,
    Floats,
    JobKind,
    Profile,
    filled,
    kind_of,
    of_pair,
)
from advisor_models.forest import Forest, read_trees
from advisor_models.heads import (
    KNOWN_HEADS,
    MEMORY_POWER,
    POWER,
    SPEED,
    Head,
    PredictionRequest,
    ServedHead,
    inputs_of,
)
from advisor_models.intervals import SPLIT, bounds_of_stratum
from advisor_models.registry import REPLACE, RETRAIN, Manifest, read_artefact, trees_file

_Factors: TypeAlias = tuple[float, float]


class ModelPredictor:
    """Predicts with a model that was checked and loaded once; safe to share between threads.

    Swapping the jobs swaps the answer exactly. A column that a profile lacks is taken as it
    usually is (`Manifest.fill`), and the bounds are wider (`Manifest.no_counters`), as they are for
    a GPU model that the model has not seen (`Manifest.other_gpu`).

    Raises:
        ModelError: the folder is not whole, or was made for other heads or features than this
            version's.
    """

    def __init__(self, folder: Path) -> None:
        artefact = read_artefact(folder)
        self.manifest: Manifest = artefact.manifest
        known = {head.name: head for head in KNOWN_HEADS}
        _check_heads(self.manifest, known)
        if gaps := sorted(set(COLUMNS) - set(NEEDED) - self.manifest.fill.keys()):
            raise ModelError(
                f"the model {self.manifest.version} cannot fill in {', '.join(gaps)}",
                why="a profile may lack them",
                fix=RETRAIN,
            )
        self._heads = {
            h.name: ServedHead(known[h.name], h, self.manifest) for h in self.manifest.heads
        }
        self._forest = Forest(
            *(
                read_trees(h.name, artefact.files[trees_file(h.name)], len(h.features))
                for h in self.manifest.heads
            )
        )
        # Anyone who places jobs asks for many pairs of few jobs, at the same splits.
        self._side = functools.lru_cache(maxsize=512)(self._new_side)
        self._kind = functools.lru_cache(maxsize=512)(self._new_kind)

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> Predictions:
        """One prediction for each split, in their order.

        Raises:
            InputError: not two profiles, those of two GPU models, or a share outside of one.
        """
        values, n = self.values(profiles, splits), len(splits)
        (power_w,) = values[POWER.name]
        unknown = np.full((1, 3, n), np.nan)
        (memory_power_w,) = values.get(MEMORY_POWER.name, unknown)
        speeds = map(possible_speeds, profiles, values[SPEED.name])
        factors = np.full((2, n), np.nan)
        if (efficiency := self._efficiency(profiles)) is not None:
            factors[:, [split.is_limited for split in splits]] = np.array([efficiency]).T
        return Predictions(
            splits=tuple(splits),
            solo=solo_of(profiles),
            speeds=np.stack([*speeds], axis=1),
            power_w=power_w,
            latencies_p99_ms=np.full((3, len(profiles), n), np.nan),
            memory_power_w=memory_power_w,
            efficiency_factors=factors,
        )

    def values(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> dict[str, Floats]:
        """What each head says of jobs at splits, as `ServedHead.values` has it.

        Raises:
            InputError: as for `predict`.
        """
        seen, whole = self._known(profiles)
        sides, gpu_model = self._sides(profiles, splits), profiles[0].gpu_model
        kinds = tuple(map(self._kind, profiles))
        asked = PredictionRequest(sides, kinds, splits, gpu_model, seen, whole)
        inputs = [inputs_of(head.head, sides) for head in self._heads.values()]
        answers = self._forest(*(given.features for given in inputs))
        return {
            name: head.values(given, found, asked)
            for (name, head), given, found in zip(self._heads.items(), inputs, answers, strict=True)
        }

    def expected(self, asked: Sequence[AskedPair]) -> list[ExpectedPair]:
        """What is expected of many pairs, each at its splits: `predict` without intervals.

        Raises:
            InputError: as for `predict`.
        """
        if not asked:
            return []
        for profiles, _ in asked:
            self._known(profiles)
        sides = [self._sides(*of_pair) for of_pair in asked]
        inputs = [
            [inputs_of(head.head, of_pair) for of_pair in sides] for head in self._heads.values()
        ]
        rows = [np.concatenate([given.features for given in of_head]) for of_head in inputs]
        logs = dict(zip(self._heads, self._forest(*rows), strict=True))
        priors = {
            name: np.concatenate([prior for given in of_head for prior in given.priors])
            for name, of_head in zip(self._heads, inputs, strict=True)
        }
        speeds, powers_w = (np.exp(logs[name]) * priors[name] for name in (SPEED.name, POWER.name))
        ends = np.cumsum([len(splits) for _, splits in asked])[:-1]
        return [
            ExpectedPair(of_jobs.reshape(ADVISED_JOBS, -1), power_w)
            for of_jobs, power_w in zip(
                np.split(speeds, ADVISED_JOBS * ends), np.split(powers_w, ends), strict=True
            )
        ]

    def extrapolation(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> list[str]:
        """Names of the features of the jobs that lie outside of what the model has seen.

        Raises:
            InputError: as for `predict`.
        """
        sides = self._sides(profiles, splits)
        outside = (
            head.outside(inputs_of(head.head, sides).features) for head in self._heads.values()
        )
        # Some features are of several heads.
        return list(dict.fromkeys(name for names in outside for name in names))

    def missing_columns(self, profiles: Sequence[Profile]) -> list[str]:
        """Columns that one of the profiles lacks, which are taken as they usually are."""
        return sorted({name for profile in profiles for name in profile.missing})

    def _known(self, profiles: Sequence[Profile]) -> tuple[bool, bool]:
        """Whether the jobs' GPU model was seen, and whether the profiles have every column."""
        check_advised(len(profiles))
        models = dict.fromkeys(profile.gpu_model for profile in profiles)
        if len(models) > 1:
            raise InputError(
                " and ".join(f"{p.job} was profiled on {p.gpu_model}" for p in profiles),
                why="jobs share one GPU",
                fix="give profiles of one GPU model",
            )
        return profiles[0].gpu_model in self.manifest.gpu_models, not self.missing_columns(profiles)

    def _efficiency(self, profiles: Sequence[Profile]) -> _Factors | None:
        """Factors of `energy-efficiency` at splits; speeds and power are both in it."""
        manifest, both = self.manifest, (SPEED.name, POWER.name)
        if not manifest.efficiency:
            return None
        seen, whole = self._known(profiles)
        situation = of_pair([*map(self._kind, profiles)], SPLIT)
        bounds = bounds_of_stratum(manifest.efficiency, situation)
        if not seen:
            bounds = bounds.wider(max(manifest.other_gpu.widening[name] for name in both))
        if not whole and manifest.no_counters is not None:
            bounds = bounds.wider(max(manifest.no_counters[name] for name in both))
        return bounds.factors

    def _new_side(self, profile: Profile, shares: tuple[float, ...]) -> Side:
        return side(filled(profile, self.manifest.fill), shares)

    def _new_kind(self, profile: Profile) -> JobKind:
        return kind_of(filled(profile, self.manifest.fill))

    def _sides(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> tuple[Side, ...]:
        return tuple(
            self._side(profile, tuple(split.shares[k] for split in splits))
            for k, profile in enumerate(profiles)
        )


def _check_heads(manifest: Manifest, known: dict[str, Head]) -> None:
    """A model has speed and power, and nothing that this version would feed with something else."""
    names = [head.name for head in manifest.heads]
    if unknown := sorted(set(names) - known.keys()):
        raise ModelError(
            f"the model {manifest.version} predicts {', '.join(unknown)}",
            why="this version does not know what that is made from",
            fix=f"install a newer advisor, or {RETRAIN}",
        )
    if missing := sorted({SPEED.name, POWER.name} - set(names)):
        raise ModelError(
            f"the model {manifest.version} has no {' and no '.join(missing)}", fix=RETRAIN
        )
    for trained in manifest.heads:
        head = known[trained.name]
        features = feature_names_of(head.features_of)
        if trained.features != features:
            changed = {*features} ^ {*trained.features}
            raise _other(manifest, f"they differ in {', '.join(sorted(changed)) or 'their order'}")
        if (trained.of, trained.unit, trained.prior) != (head.of, head.unit, head.prior):
            raise _other(manifest, f"its {head.name} is learned over another prior")


def _other(manifest: Manifest, why: str) -> ModelError:
    return ModelError(
        f"the model {manifest.version} was trained on other features", why=why, fix=REPLACE
    )
