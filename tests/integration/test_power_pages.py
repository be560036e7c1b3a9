"""What the power of a job and of a pair goes to, on the pages; in headless Chromium."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from browsing import Visit, browser, tab, visit
from raw_server import RawServer

from advisor_power.components import PARTS
from advisor_power.report import COLOURS

__all__ = ["browser", "tab", "visit"]

PAIR = ("triad", "matmul-bf16")
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
