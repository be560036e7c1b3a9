"""How unsure a model is of pairs that nobody has measured: how far its trees are apart.

Each tree of a forest has drawn its thresholds by itself. Where measured pairs are near, they agree;
where none is, each continues in its own way ("Query by committee", Seung, Opper and Sompolinsky,
COLT 1992). The intervals of a model cannot say this: they are as wide for every pair at a share.
"""

from collections.abc import Sequence

import numpy as np

from advisor.core.gpu import WHOLE
from advisor.predict.features import Float32s, side
from advisor.predict.profiles import Floats, Profile
from advisor_models.heads import SPEED, inputs_of
from advisor_training.learn.learners import Regressors

SHARES = np.array([20.0, 35.0, 50.0, 65.0, 80.0])
"""Of the first job, percent; the other has the rest."""


def disagreements(regressors: Regressors, pairs: Sequence[tuple[Profile, Profile]]) -> Floats:
    """Standard deviation of the trees' relative speeds, mean over both jobs and the splits.

    Args:
        regressors: Of which the trees for the speed are asked: choices hang on it.
        pairs: Profiles without missing columns (`advisor.predict.profiles.filled`), two of one GPU
            model each.

    Returns:
        Of the logarithm: 0.1 is 10 % of a speed; shape (pairs,).
    """
    if not pairs:
        return np.zeros(0)
    seen = [_features(*pair) for pair in pairs]
    trees = regressors.by_head[SPEED.name].estimators_
    features = np.concatenate(seen)
    spread = np.std([tree.predict(features) for tree in trees], axis=0)
    ends = np.cumsum([len(of_pair) for of_pair in seen])
    return np.array([part.mean() for part in np.split(spread, ends[:-1])])


def _features(a: Profile, b: Profile) -> Float32s:
    """Both jobs' at those splits that lie within the profiles, one row for each."""
    within = (a.shares[0] <= SHARES) & (b.shares[0] <= WHOLE - SHARES)
    # A profile that begins above half of the GPU is asked for all of it, without limits.
    own, other = (SHARES[within], WHOLE - SHARES[within]) if within.any() else (_ALL, _ALL)
    return inputs_of(SPEED, (side(a, own), side(b, other))).features


_ALL = np.array([WHOLE])
