"""What two jobs cost at least, by which pairs are left out of a search, beside what they cost."""

from itertools import combinations_with_replacement
from pathlib import Path

import numpy as np
import pytest

from advisor.core.gpu import WHOLE
from advisor.decide.limits import Request
from advisor.placement.answers import set_answers
from advisor.placement.placing import Kind, Pool, make_placing
from advisor.settings import read_settings
from advisor_advice.profiles import find_profiles
from advisor_data.bundled import bundled_solo_points
from advisor_models.registry import Registry


@pytest.mark.slow
@pytest.mark.parametrize("gpu_model", ["NVIDIA H200", "NVIDIA H100 80GB HBM3"])
def test_no_bundled_pair_costs_less_than_its_bound(gpu_model: str, tmp_path: Path) -> None:
    """Watts, and those of the work that lags behind; nor than what the model expects of it."""
    points = [p for p in bundled_solo_points() if p.gpu_model == gpu_model]
    names = sorted({p.job for p in points if p.share_percent == WHOLE})
    profiles = find_profiles(
        names, read_settings({"ADVISOR_HOME": str(tmp_path)}), gpu_model
    ).profiles
    pool = Pool(
        gpu_model=gpu_model,
        gpus=1,
        profiles=tuple(profiles),
        limits=Request(),
        idle_power_w=profiles[0].idle_power_w,
        of_pairs=Registry(tmp_path / "models").open_champion(),
    )
    kinds = [
        Kind(name=profile.job, count=2, is_server=bool(profile.serving)) for profile in profiles
    ]
    answers = set_answers(make_placing(kinds, [pool], "energy-efficiency"), 0)
    pairs = [*combinations_with_replacement(answers.there, 2)]
    places = [(answers.there.index(a), answers.there.index(b)) for a, b in pairs]
    found = zip(pairs, (answers.pair(a, b) for a, b in places), strict=True)
    costs = {pair: one.cost for pair, one in found if one}
    assert len(costs) > 100
    assert min(cost / float(answers.two.costs[pair]) for pair, cost in costs.items()) >= 1
    answers.two.look_at(np.array(pairs))
    parts = [cost / float(answers.two.costs[pair]) for pair, cost in costs.items()]
    assert min(parts) >= 1
    assert np.median(parts) == pytest.approx(1, abs=0.01)
