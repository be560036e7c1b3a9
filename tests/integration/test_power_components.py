"""`advisor power components`: what is known of where the power of a job goes."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from browsing import Visit, browser, tab, visit
from command_line import Advisor, answered, refusal
from in_process import Api, error_of, running
from reading import some

from advisor.core.records import SoloPoint
from advisor.errors import InputError
from advisor.formats.rows import to_row
from advisor.formats.wire import read
from advisor.predict.profiles import Profile, make_profile
from advisor.wire.answers import ComponentsOfJob
from advisor_advice.answers import components_by_share
from advisor_data.bundled import bundled_solo_points

__all__ = ["browser", "tab", "visit"]


def told(advisor: Advisor, *words: str) -> ComponentsOfJob:
    return read(ComponentsOfJob, json.dumps(answered(advisor, "power", "components", *words)))


def walsh() -> tuple[Profile, list[SoloPoint]]:
    """A job of one GPU model, and its trusted windows."""
    points = [p for p in bundled_solo_points(["walsh"]) if p.gpu_model == "NVIDIA H200"]
    return make_profile(points), [p for p in points if not p.flags]


def test_a_job_has_total_floor_and_headroom_at_each_share(advisor: Advisor) -> None:
    """Nothing is divided among pipes: no weights for that agree with work of one kind."""
    found = told(advisor, "triad")
    limit_w = some(found.power_limit_w)
    for one in found.shares:
        assert found.floor_w < one.power_w
        assert some(one.headroom_w) == pytest.approx(limit_w - one.power_w)
    said = advisor("power", "components", "triad").out
    assert f"floor {found.floor_w:.0f} W" in said
    assert "tensor" not in said


def test_the_memory_is_what_its_sensor_read(advisor: Advisor) -> None:
    """It is left out where it was not read, never estimated."""
    read_w = {one.memory_w for one in told(advisor, "embedding-serve-10").shares}
    assert all(w is not None and 20 < w < 300 for w in read_w)
    assert {one.memory_w for one in told(advisor, "triad").shares} == {None}


def test_a_floor_that_was_not_measured_is_said_to_be_none() -> None:
    profile, points = walsh()
    measured = components_by_share(replace(profile, active_idle_power_w=130.0), points)
    assert (measured.floor_w, measured.floor_is_measured) == (130.0, True)
    unread = components_by_share(replace(profile, active_idle_power_w=math.nan), points)
    assert profile.idle_power_w < unread.floor_w
    assert not unread.floor_is_measured


def test_the_newest_window_counts_and_one_without_trust_does_not() -> None:
    profile, points = walsh()
    one = next(p for p in points if p.share_percent == 100)
    newer = replace(one, power_w=(one.power_w or 0) + 1, started_at="2027-01-01T00:00:00Z")
    wrong = replace(one, flags=("wrong-results",), started_at="2028-01-01T00:00:00Z", power_w=1.0)
    assert components_by_share(profile, [newer, one, wrong]).shares[-1].power_w == newer.power_w
    with pytest.raises(InputError, match="no window of walsh"):
        components_by_share(profile, [wrong])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["triadd"], "similar names: triad"),
        (["triad", "--gpu-model", "NVIDIA B200"], "no profile on NVIDIA B200"),
    ],
)
def test_mistakes_say_what_to_do(advisor: Advisor, words: list[str], says: str) -> None:
    assert says in refusal(advisor("power", "components", *words))


@pytest.fixture
def api(advisor: Advisor, tmp_path: Path) -> Iterator[Api]:
    """A service with the home of the command line."""
    del advisor
    with running(tmp_path / "home") as api:
        yield api


def test_service_says_what_the_command_line_says(advisor: Advisor, api: Api) -> None:
    """Also of what it was sent a moment ago."""
    path = "/v1/profiles/walsh/components"
    assert api.get(path) == answered(advisor, "power", "components", "walsh")
    _, points = walsh()
    one = next(p for p in points if p.share_percent == 100)
    newer = replace(one, memory_power_w=80.0, started_at="2026-11-25T23:00:00.000000Z", run="mine")
    api.post("/v1/points", {"points": [to_row(newer)]}, api.token("write"))
    after = api.get(path)
    assert after["shares"][-1]["memory_w"] == 80.0
    assert after == answered(advisor, "power", "components", "walsh")
    status, code, message = error_of(api.ask("GET", "/v1/profiles/triadd/components"))
    assert (status, code, "similar names: triad" in message) == (422, "bad-input", True)


@pytest.mark.slow
def test_the_page_of_a_job_has_the_same_table(advisor: Advisor, visit: Visit) -> None:
    found = told(advisor, "triad")
    visit.open("/job?name=triad&gpu=NVIDIA%20H200")
    assert visit.page.locator("#parts tbody tr").count() == len(found.shares)
    for number, one in enumerate(found.shares, start=1):
        row = visit.text(f"#parts tbody tr:nth-child({number})")
        assert f"{round(one.power_w)}" in row
        assert "not known" in row
    assert f"{found.floor_w:.0f} W" in visit.text("#parts")


@pytest.mark.slow
def test_what_is_not_known_is_said_in_the_words_of_the_service(visit: Visit) -> None:
    """A refusal leaves the rest of the page whole."""
    refused = {"error": {"code": "bad-input", "message": "no window of triad can be trusted"}}
    visit.play("/v1/profiles/triad/components*", refused, status=422)
    visit.open("/job?name=triad")
    assert "is not known: no window of triad can be trusted" in visit.text("#parts")
    assert visit.page.locator("figure svg").count() >= 4
    assert visit.problems.pop().startswith("error: Failed to load resource")
