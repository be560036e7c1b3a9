"""The predictor that is served: a model's ONNX graph between the features and the predictions."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from advisor.core.interval import Interval
from advisor.errors import InputError, ModelError
from advisor.predict.features import Side, feature_names_of, side
from advisor.predict.predictions import UNCAPPED, Prediction, Split
from advisor.predict.profiles import COLUMNS, NEEDED, Profile, filled
from advisor_models.heads import HEADS, POWER, SPEED, Head
from advisor_models.manifest import MODEL, RETRAIN, Manifest, read_artefact
from advisor_models.served_head import Asked, ServedHead, Values
from advisor_models.session import Port, Session

_Factors: TypeAlias = tuple[float, float]


class OnnxPredictor:
    """Predicts with a model that was checked and loaded once; safe to share between threads.

    Swapping the jobs swaps the answer exactly. A column that a profile lacks is taken as it
    usually is (`Manifest.fill`), and the bounds are wider (`Manifest.no_counters`), as they are for
    a GPU model that the model has not seen (`Manifest.other_gpu`).

    Args:
        folder: The model's folder.
        heads: What this version can predict; a model may have fewer of them.

    Attributes:
        manifest: What is known of the model.

    Raises:
        ModelError: the folder is not whole, or was made for other heads or features than this
            version's.
    """

    def __init__(self, folder: Path, heads: Sequence[Head] = HEADS) -> None:
        artefact = read_artefact(folder)
        self.manifest: Manifest = artefact.manifest
        known = {head.name: head for head in heads}
        _check_heads(self.manifest, known)
        _check_fill(self.manifest)
        self._heads = {
            h.name: ServedHead(known[h.name], self.manifest) for h in self.manifest.heads
        }
        ports = [Port(h.name, h.output, len(h.features)) for h in self.manifest.heads]
        self._session = Session(artefact.files[MODEL], ports)
        # Whoever places jobs asks for many pairs of few jobs, at the same splits.
        self._side = functools.lru_cache(maxsize=512)(self._new_side)

    def predict(self, a: Profile, b: Profile, splits: Sequence[Split]) -> list[Prediction]:
        """One prediction for each split, in their order.

        Raises:
            InputError: the profiles are of two GPU models, or a share lies outside of one.
        """
        if not splits:
            return []
        values = self.values(a, b, splits)
        efficiency = self._efficiency(a, b)
        return [
            _prediction(a, b, split, speeds, power, efficiency)
            for split, *speeds, power in zip(
                splits, *values[SPEED.name], *values[POWER.name], strict=True
            )
        ]

    def values(self, a: Profile, b: Profile, splits: Sequence[Split]) -> dict[str, Values]:
        """What each head says of two jobs at splits.

        Raises:
            InputError: the profiles are of two GPU models, or a share lies outside of one.
        """
        asked = self._asked(a, b, splits)
        inputs = {name: head.inputs(*asked.sides) for name, head in self._heads.items()}
        logs = self._session({name: its.features for name, its in inputs.items()})
        return {
            name: head.values(inputs[name], logs[name], asked) for name, head in self._heads.items()
        }

    def extrapolation(self, a: Profile, b: Profile, splits: Sequence[Split]) -> list[str]:
        """Names of the features of the pair that lie outside of what the model has seen.

        Raises:
            InputError: as for `predict`.
        """
        sides = self._sides(a, b, splits)
        outside = (head.outside(head.inputs(*sides).features) for head in self._heads.values())
        # Some features are of several heads.
        return list(dict.fromkeys(name for names in outside for name in names))

    def missing_columns(self, a: Profile, b: Profile) -> list[str]:
        """Columns that one of the profiles lacks, which are taken as they usually are."""
        return sorted({*a.missing, *b.missing})

    def _known(self, a: Profile, b: Profile) -> tuple[bool, bool]:
        """Whether the pair's GPU model was seen, and whether the profiles have every column."""
        if a.gpu_model != b.gpu_model:
            raise InputError(
                f"{a.job} was profiled on {a.gpu_model} and {b.job} on {b.gpu_model}",
                why="a pair shares one GPU",
                fix="give two profiles of one GPU model",
            )
        return a.gpu_model in self.manifest.gpu_models, not self.missing_columns(a, b)

    def _efficiency(self, a: Profile, b: Profile) -> _Factors | None:
        """Factors of `energy-efficiency` at splits; speeds and power are both in it."""
        bounds, manifest, both = self.manifest.efficiency, self.manifest, (SPEED.name, POWER.name)
        if bounds is None:
            return None
        seen, whole = self._known(a, b)
        if not seen:
            bounds = bounds.wider(max(manifest.other_gpu.widening[name] for name in both))
        if not whole and manifest.no_counters is not None:
            bounds = bounds.wider(max(manifest.no_counters[name] for name in both))
        return bounds.factors

    def _new_side(self, profile: Profile, shares: tuple[float, ...]) -> Side:
        return side(filled(profile, self.manifest.fill), shares)

    def _sides(self, a: Profile, b: Profile, splits: Sequence[Split]) -> tuple[Side, Side]:
        own = self._side(a, tuple(share for share, _ in splits))
        return own, self._side(b, tuple(share for _, share in splits))

    def _asked(self, a: Profile, b: Profile, splits: Sequence[Split]) -> Asked:
        seen, whole = self._known(a, b)
        return Asked(self._sides(a, b, splits), splits, seen, whole)


def _check_heads(manifest: Manifest, known: dict[str, Head]) -> None:
    """A model has speed and power, and nothing that this version would feed with something else."""
    names = [head.name for head in manifest.heads]
    if unknown := sorted(set(names) - known.keys()):
        raise ModelError(
            f"the model {manifest.version} predicts {', '.join(unknown)}",
            why="this version does not know what that is made from",
            fix=f"install a newer sm-advisor, or {RETRAIN}",
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
        f"the model {manifest.version} was trained on other features",
        why=why,
        fix=f"{RETRAIN}; or take the one that came with it: advisor models promote bundled",
    )


def _check_fill(manifest: Manifest) -> None:
    if gaps := sorted(set(COLUMNS) - set(NEEDED) - manifest.fill.keys()):
        raise ModelError(
            f"the model {manifest.version} cannot fill in {', '.join(gaps)}",
            why="a profile may lack them",
            fix=RETRAIN,
        )


def _prediction(
    a: Profile,
    b: Profile,
    split: Split,
    speeds: Sequence[Interval],
    power_w: Interval,
    efficiency: _Factors | None,
) -> Prediction:
    return Prediction(
        way="uncapped" if split == UNCAPPED else "split",
        share_a_percent=split[0],
        share_b_percent=split[1],
        speed_a=_served(a, speeds[0]),
        speed_b=_served(b, speeds[1]),
        power_w=power_w,
        solo_rate_a=a.whole_gpu_rate,
        solo_rate_b=b.whole_gpu_rate,
        solo_power_a_w=a.whole_gpu_power_w,
        solo_power_b_w=b.whole_gpu_power_w,
        efficiency_factors=None if split == UNCAPPED else efficiency,
    )


def _served(profile: Profile, speed: Interval) -> Interval:
    return profile.serving.served(speed) if profile.serving else speed
