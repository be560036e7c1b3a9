"""`advisor power components`: where the power of a job, or of two, goes."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browsing import Visit, browser, tab, visit
from command_line import Advisor, answered, refusal
from in_process import Api, error_of, running
from raw_server import RawServer

import advisor_api
from advisor.core.records import SoloPoint
from advisor.formats.rows import to_row
from advisor.formats.wire import read
from advisor.wire.answers import NOT_IDENTIFIED, ComponentsOfJob, ComponentsOfPair
from advisor_data.bundled import bundled_solo_points
from advisor_power import components
from advisor_power.components import PARTS, ComponentWeights, fit_components
from advisor_power.report import COLOURS, parts_notes

PAIR = ("triad", "matmul-bf16")
SHARED = ("mobilenet-train-b2", "triad")
"""A pair that is to share the GPU."""

APART = ("gemm", "triad")
"""One that is not."""


def told(advisor: Advisor, *words: str) -> dict[str, Any]:
    return answered(advisor, "power", "components", *words)


def sums(power: dict[str, Any]) -> bool:
    parts = [part["value"] for part in power["components_w"].values()]
    return sum(parts) == pytest.approx(power["power_w"])


def test_parts_of_a_job(advisor: Advisor) -> None:
    """Their keys are those of the service."""
    found = told(advisor, "triad")
    assert read(ComponentsOfJob, json.dumps(found)).job == "triad"
    powers: list[dict[str, Any]] = [one["power"] for one in found["shares"]]
    for power in powers:
        assert sums(power)
        # No bundled point was measured with the memory's own sensor.
        assert (power["power_basis"], power["memory_basis"]) == ("measured", "estimated")
        assert power["headroom_w"] == pytest.approx(700 - power["power_w"])
    parts = powers[-1]["components_w"]
    assert list(parts) == list(PARTS)
    assert parts["memory"]["value"] > parts["tensor"]["value"] == 0


def test_parts_of_a_pair_swap_with_the_jobs(advisor: Advisor) -> None:
    """Measured splits among predicted ones; with the jobs swapped, the answer is swapped."""
    there, back = (
        {one["split"]: one for one in told(advisor, *jobs, "--splits")["splits"]}
        for jobs in (PAIR, PAIR[::-1])
    )
    assert all(sums(one["power"]) for one in there.values())
    even, mirrored = there["50/50"], back["50/50"]
    assert even["power"] == mirrored["power"]
    assert [there[split]["power"]["power_basis"] for split in ("50/50", "11/90")] == [
        "measured", "estimated"
    ]  # fmt: skip
    assert even["causes_mhz"] == mirrored["causes_mhz"][::-1]
    caused = sum(cause["value"] for cause in even["causes_mhz"])
    assert caused == pytest.approx(even["clock_loss_mhz"])
    assert "the power limit is reached" in even["jostling"]


def test_far_from_the_limit_nobody_lowers_the_clock(advisor: Advisor) -> None:
    found = told(advisor, "bert-infer-b2", "mobilenet-infer-b2", "--splits")
    assert {one["causes_mhz"] for one in found["splits"]} == {None}
    assert all("it lowers no clock" in one["jostling"] for one in found["splits"])


def test_bars_are_as_long_as_the_power(advisor: Advisor) -> None:
    """A letter for each fiftieth of the limit; the rest is dots."""
    said = advisor("power", "components", "gemm")
    assert said.code == 0, said.err
    bars = [
        word for line in said.out.splitlines() for word in line.split() if word.startswith("ff")
    ]
    whole = told(advisor, "gemm")["shares"]
    assert len(bars) == len(whole)
    for bar, one in zip(bars, whole, strict=True):
        assert (len(bar), len(bar.rstrip("."))) == (50, round(50 * one["power"]["power_w"] / 700))
    assert "~" in said.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["triad", "gemm"], "triad gemm --splits"),
        (["triad", "--splits"], "needs a second job"),
        (["triadd"], "similar names: triad"),
        (["triad", "--gpu-model", "NVIDIA B200"], "no profile on NVIDIA B200"),
    ],
)
def test_mistakes_say_what_to_do(advisor: Advisor, words: list[str], says: str) -> None:
    assert says in refusal(advisor("power", "components", *words))


def test_recommendation_says_no_parts_unless_it_is_asked(
    advisor: Advisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fitting takes longer than the recommendation."""
    monkeypatch.setattr(components, "fit_components", None)
    answer = answered(advisor, "recommend", *SHARED)
    assert answer["components"] is answer["components_unknown"] is None


def test_wherever_parts_are_shown_they_are_said_not_to_be_identified(advisor: Advisor) -> None:
    """Of a job, of a pair with one sentence at its end, and below a recommendation."""
    alone = advisor("power", "components", "triad").out
    pair = advisor("power", "components", *PAIR, "--splits").out
    assert pair.splitlines()[-1].startswith("where the clock falls most: at ")
    recommended = advisor("recommend", *SHARED, "--components").out
    assert "goes to; ~ estimated, ? extrapolated" in recommended
    assert recommended.splitlines()[-1].startswith("at ")
    page = Path(advisor_api.__file__).parent / "pages/power_parts.js"
    of_pair = read(ComponentsOfPair, json.dumps(told(advisor, *SHARED, "--splits")))
    for shown in (alone, pair, recommended, page.read_text("utf-8"), [*parts_notes(of_pair)]):
        assert NOT_IDENTIFIED in shown
    assert "what the power goes to is not known" in advisor("recommend", *APART, "--components").out


@pytest.fixture
def api(advisor: Advisor, tmp_path: Path) -> Iterator[Api]:
    """A service with the home of the command line."""
    del advisor
    with running(tmp_path / "home") as api:
        yield api


@pytest.mark.slow
def test_service_says_what_the_command_line_says(advisor: Advisor, api: Api) -> None:
    for pair in (SHARED, PAIR):
        asked = {"jobs": [{"job": job} for job in pair], "components": True}
        said = answered(advisor, "recommend", *pair, "--components")
        assert api.post("/v1/recommendations", asked) == said
    for model in ("NVIDIA H200", "NVIDIA H100 80GB HBM3"):
        found = api.get("/v1/profiles/triad/components", gpu_model=model)
        assert found == told(advisor, "triad", "--gpu-model", model)
    found = api.get(f"/v1/pairs/{PAIR[0]}/{PAIR[1]}/components")
    assert found == told(advisor, *PAIR, "--splits")
    status, code, message = error_of(api.ask("GET", "/v1/profiles/triadd/components"))
    assert (status, code, "similar names: triad" in message) == (422, "bad-input", True)


def test_service_fits_once_for_each_state_of_the_store(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much is asked; new points change what is said."""
    fits: list[int] = []

    def counted(points: Sequence[SoloPoint]) -> ComponentWeights:
        fits.append(len(points))
        return fit_components(points)

    monkeypatch.setattr(components, "fit_components", counted)
    for pair in (SHARED, SHARED[::-1], PAIR):
        asked = {"jobs": [{"job": job} for job in pair], "components": True}
        api.post("/v1/recommendations", asked)
    api.get("/v1/profiles/triad/components")
    before = api.get("/v1/profiles/walsh/components")
    assert len(fits) == 1
    (bundled,) = [
        p
        for p in bundled_solo_points(["walsh"])
        if p.share_percent == 100 and p.gpu_model == before["gpu_model"] and not p.flags
    ]
    newer = replace(
        bundled, memory_power_w=80.0, started_at="2026-11-25T23:00:00.000000Z", run="mine"
    )
    api.post("/v1/points", {"points": [to_row(newer)]}, api.token("write"))
    after = api.get("/v1/profiles/walsh/components")
    assert fits == [fits[0], fits[0] + 1]
    assert after["shares"][-1]["power"]["memory_basis"] == "measured"


# What the power of a job and of a pair goes to, on the pages; in headless Chromium.


__all__ = ["browser", "tab", "visit"]

PAIR_PAGE = "/set?jobs=triad+matmul-bf16"
TABLE = "#parts table"
STYLE = Path(__file__).parents[2] / "api/advisor_api/pages/style.css"


def _ask(served: RawServer, path: str) -> dict[str, Any]:
    answer = served.ask("GET", f"{path}?gpu_model=NVIDIA%20H200")
    assert answer.status == 200, answer.body
    return json.loads(answer.body)


def _widths(visit: Visit, row: int) -> list[float]:
    of_row = f"{TABLE} tbody tr:nth-child({row + 1}) [class^=part-]"
    return [
        float(piece.get_attribute("width") or "nan") for piece in visit.page.locator(of_row).all()
    ]


def _is_drawn(visit: Visit, row: int, power: dict[str, Any]) -> None:
    """The pieces of the bar are as long as the parts, and every number stands there as text."""
    widths, watts = _widths(visit, row), [p["value"] for p in power["components_w"].values()]
    assert [w / sum(widths) for w in widths] == pytest.approx([w / sum(watts) for w in watts])
    shown = visit.text(f"{TABLE} tbody tr:nth-child({row + 1})")
    for value in (power["power_w"], *watts):
        assert f"{round(value)}" in shown


@pytest.mark.slow
def test_a_job_has_a_bar_for_each_share(visit: Visit, served: RawServer) -> None:
    """They are those of the API; the limit and where the weights come from stand there, too."""
    told = _ask(served, "/v1/profiles/triad/components")
    visit.open("/job?name=triad&gpu=NVIDIA%20H200")
    assert visit.page.locator(f"{TABLE} tbody tr").count() == len(told["shares"]) > 1
    for row, one in enumerate(told["shares"]):
        _is_drawn(visit, row, one["power"])
    assert f"power limit of {told['power_limit_w']:.0f} W" in visit.text("#parts")
    assert f"{told['weights']['windows']} windows of {told['weights']['jobs']}" in visit.text(
        "#parts"
    )


@pytest.mark.slow
def test_a_pair_says_at_each_split_who_lowers_the_clock(visit: Visit, served: RawServer) -> None:
    """The sentence and the marked row follow the slider, and nothing is asked again."""
    told = _ask(served, "/v1/pairs/triad/matmul-bf16/components")
    splits = {one["split"]: (row, one) for row, one in enumerate(told["splits"])}
    visit.open(PAIR_PAGE + "&gpu=NVIDIA%20H200")
    asked = len(visit.asked)
    visit.page.focus("#share-1")
    visit.page.keyboard.press("Home")
    seen = set[str]()
    for _ in range(9):
        split = visit.text("#said").split(":")[0]
        row, one = splits[split]
        _is_drawn(visit, row, one["power"])
        assert visit.text("#jostling").lower().startswith(one["jostling"].lower())
        left = one["power"]["headroom_w"]
        assert f"{abs(round(left))} W" in visit.text("#jostling").split(". ")[-1]
        assert visit.page.locator(f"{TABLE} tr.chosen th").all_inner_texts() == [split]
        seen.add(split)
        visit.page.keyboard.press("ArrowRight")
    assert len(seen) > 3
    assert len(visit.asked) == asked


@pytest.mark.slow
def test_what_is_not_known_is_not_drawn(visit: Visit) -> None:
    """A refusal leaves the rest of the page whole, draws no bar and gives the service's reason."""
    refusal = {"error": {"code": "bad-input", "message": "no window of triad has all counters"}}
    for path, page in (
        ("/v1/pairs/triad/matmul-bf16/components*", PAIR_PAGE),
        ("/v1/profiles/triad/components*", "/job?name=triad"),
    ):
        visit.play(path, refusal, status=422)
        visit.open(page)
        assert "is not known: no window of triad has all counters" in visit.text("#parts")
        assert visit.page.locator("#parts svg").count() == 0
        assert visit.page.locator("figure svg").count() >= 4
        assert visit.problems.pop().startswith("error: Failed to load resource")
    assert visit.page.locator(".notice.failed").count() == 0


def test_a_limit_that_is_not_known_is_no_headroom(visit: Visit, served: RawServer) -> None:
    """The bar ends where the power does, and words say that the limit is not known."""
    told = _ask(served, "/v1/pairs/triad/matmul-bf16/components")
    for one in told["splits"]:
        one["power"]["headroom_w"] = None
    visit.play("/v1/pairs/triad/matmul-bf16/components*", {**told, "power_limit_w": None})
    visit.open(PAIR_PAGE)
    frame = visit.page.get_attribute(f"{TABLE} tbody tr rect.left", "width")
    assert float(frame or "nan") == pytest.approx(sum(_widths(visit, 0)))
    assert "The power limit is not known" in visit.text("#parts")
    assert visit.text("#jostling").startswith("At 26/50 the power limit is reached")
    visit.page.focus("#share-1")
    visit.page.keyboard.press("Home")
    assert visit.text("#jostling").endswith("How much is left to the power limit is not known.")


def test_a_split_between_the_steps_is_not_made_up(visit: Visit) -> None:
    """With finer steps some splits have no parts: no row is marked, and words say so."""
    visit.open(PAIR_PAGE + "&gpu=NVIDIA%20H200&steps=fine")
    known = visit.page.locator(f"{TABLE} tbody th").all_inner_texts()
    visit.page.focus("#share-1")
    visit.page.keyboard.press("Home")
    while (split := visit.text("#said").split(":")[0]) in known:
        visit.page.keyboard.press("ArrowRight")
    assert visit.text("#jostling").startswith(f"Of {split} it is not known what the power goes to")
    assert visit.page.locator(f"{TABLE} tr.chosen").count() == 0


@pytest.mark.slow
def test_parts_are_those_of_the_package(visit: Visit) -> None:
    visit.open("/jobs")
    parts = visit.page.evaluate("import('/pages/power_parts.js').then((m) => Object.keys(m.PARTS))")
    assert parts == list(PARTS)


def test_colours_of_parts_can_be_told_from_both_grounds() -> None:
    """3 to 1 or more, as WCAG 2 asks of what is no text, in light and in dark."""
    style = STYLE.read_text()
    grounds = re.findall(r"--(?:ground|raised): (#\w{6});", style)
    colours = re.findall(r"\.part-(\w+) \{ fill: (#\w{6}); \}", style)
    assert (len(grounds), [name for name, _ in colours]) == (4, list(PARTS))
    assert dict(colours) == COLOURS, "a report has others"
    for _, colour in colours:
        for ground in grounds:
            high, low = sorted((_luminance(colour), _luminance(ground)), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 3, (colour, ground)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(p * w for p, w in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))
