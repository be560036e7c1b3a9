"""How far the trees of a model are apart about a pair."""

import itertools

import numpy as np
import pytest
import synthetic_pairs as made_up
from made_up_rows import solo_points, training_set

from advisor.predict.profiles import Profile, filled, make_profiles
from advisor_training.learn.learners import Regressors, extra_trees, fit
from advisor_training.next.disagreement import disagreements

pytestmark = pytest.mark.figures

MADE_FROM = training_set()
PROFILES = {
    job: filled(profile, MADE_FROM.fill)
    for (job, _), profile in make_profiles(solo_points()).items()
}
PAIRS = list(itertools.combinations_with_replacement(sorted(PROFILES), 2))


def profiles_of(*pairs: tuple[str, str]) -> list[tuple[Profile, Profile]]:
    """Profiles of pairs."""
    return [(PROFILES[a], PROFILES[b]) for a, b in pairs]


def fitted(job: str | None = None) -> Regressors:
    """A model of all made-up pairs, or of those without a job."""
    rows = MADE_FROM.rows
    return fit(extra_trees, rows if job is None else rows.take(~rows.of(job)))


def test_one_for_each_pair_in_their_order() -> None:
    """Each as if it were asked by itself."""
    model = fitted()
    together = disagreements(model, profiles_of(*PAIRS))
    assert together.shape == (len(PAIRS),)
    alone = [disagreements(model, profiles_of(pair))[0] for pair in PAIRS]
    np.testing.assert_allclose(together, alone)


def test_the_order_of_the_jobs_does_not_matter() -> None:
    """A pair is a pair."""
    model, (a, b) = fitted(), ("climber", "hog")
    one, other = disagreements(model, profiles_of((a, b), (b, a)))
    assert one == pytest.approx(other)


@pytest.mark.parametrize("job", [job.name for job in made_up.JOBS])
def test_measuring_the_pairs_of_a_job_makes_the_trees_agree(job: str) -> None:
    """About these, in the mean."""
    its = profiles_of(*(pair for pair in PAIRS if job in pair))
    assert disagreements(fitted(), its).mean() < disagreements(fitted(job), its).mean()


def test_no_pairs() -> None:
    """Nothing to choose from is no error."""
    assert disagreements(fitted(), []).shape == (0,)
