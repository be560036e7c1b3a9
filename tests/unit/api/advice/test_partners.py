"""The best partners of one job, its size alone, and the copies that memory has room for."""

from pathlib import Path
from typing import Any

import pytest
from advised import CARD, CHECKED, model, profile, settings_of, solo_points

from advisor.core.split import EQUAL
from advisor.decide.recommend import Request
from advisor.errors import InputError
from advisor.predict.serving import Serving
from advisor.validity.safe_counts import CheckedCounts
from advisor_advice import conditions as module
from advisor_advice.partners import best_partners, best_size
from advisor_data import open_store
from advisor_models.registry import Registry

ANY = Request(default_min_speed=0.0, min_gain=0.03, memory_mib=10_000.0)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Jobs `a`, `b` and `c`, any two of which save half of the GPU time."""
    settings = settings_of(tmp_path)
    with open_store(settings.database_url, settings.home) as store:
        store.add(p for job in "abc" for p in solo_points(job))
        store.add(solo_points("d", gpu_model="Other"))

    def champion(_: Registry) -> Any:
        return model({EQUAL: (1.0, 1.0, 500.0)})

    def checked(*_: object) -> CheckedCounts:
        return CHECKED

    monkeypatch.setattr(Registry, "open_champion", champion)
    monkeypatch.setattr(module, "checked_on", checked)
    return tmp_path


def test_partners_are_all_jobs_of_the_gpu_model(host: Path) -> None:
    """The job itself among them, and none of another model."""
    found = best_partners("a", settings_of(host), ANY)
    assert (found.gpu_model, found.looked_at) == (CARD, 3)
    assert {p.partner for p in found.partners} == {"a", "b", "c"}
    best = found.partners[0]
    assert (best.verdict, best.split, best.cost_saved) == ("share", "50/50", None)
    assert best.gpu_time_saved.value == pytest.approx(0.5)
    assert found.copies_by_memory == 9


def test_a_job_without_a_profile_has_none(host: Path) -> None:
    with pytest.raises(InputError, match="there is no job x"):
        best_partners("x", settings_of(host), ANY)


def test_the_size_is_the_smallest_that_keeps_the_speed() -> None:
    """With the tail there; a job that falls with every SM has none but the whole GPU."""
    serving = Serving(
        offered_rate=100.0, rate_noise=None, latency_p99_ms=((30.0, 9.0), (100.0, 4.0))
    )
    served = profile("s", rates=[50, 90, 96, *[100] * 7], serving=serving)
    size = best_size(served)
    assert size
    assert (size.share_percent, size.speed, size.latency_p99_ms) == (30.0, 0.96, 9.0)
    assert best_size(profile("a")) is None
