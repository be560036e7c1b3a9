"""The pages in headless Chromium, served by a real `advisor serve`; pictures of each of them."""

import dataclasses
import gzip
import hashlib
import json
import math
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from browsing import Visit, browser, picture, tab, visit, visiting
from new_database import keep
from playwright.sync_api import Browser
from raw_server import JSON, RawServer, raw_server
from reading import some
from small_model import free_names
from store_points import observation

from advisor.core.objectives import OBJECTIVES, Interval
from advisor.core.records import FLAGS, WRONG, Observation, SoloPoint
from advisor.formats.moments import duration_text
from advisor.formats.wire import to_plain
from advisor.launch.folder import History, JobHistory
from advisor.launch.spec import Forecast, JobForecast, JobStatus, LaunchStatus, Ledger, Saved
from advisor_data.bundled import GPU_MODEL as BUNDLED_MODEL, bundled_solo_points
from advisor_models.registry import BUNDLED, Artefact, Registry, read_artefact, write_artefact

__all__ = ["browser", "tab", "visit"]

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "build/screenshots"
"""Of the last run; docs/pages.md shows some of them."""

EVALUATION = ROOT / "tests/fixtures/evaluation-jobs.json"
"""What `advisor evaluate` wrote of the bundled model, its part by job."""

EVIL = "zz <img src=x onerror=document.title='owned'>"
LAUNCH = "20260131-120000-3f2a91"
VERSION = "20260131-0a1b2c"
PAIR = ("fft", "resnet50-train-b2")

PAGES = {
    "overview": "/",
    "jobs": "/jobs",
    "matrix": "/matrix",
    "job": "/job?name=bert-infer",
    "stored-job": "/job?name=mine",
    "server-job": "/job?name=server",
    "pair": "/set?jobs=fft+resnet50-train-b2",
    "pair-fine": "/set?jobs=bert-train+mine&steps=fine&max_power=720",
    "set": "/set?jobs=mobilenet-train-b2+mobilenet-train-b2+triad",
    "queue": "/queue?jobs=bert-infer-b2:6,mobilenet-train-b2:6,vit-train:4&gpus=4",
    "models": "/models",
    "model": f"/model?version={VERSION}",
    "launches": "/launches",
    "launch": f"/launch?id={LAUNCH}",
    "api": "/docs#recommend",
}

HEAVIEST = 210_000
"""Bytes of a page with all that it asks for."""


SEEN = {
    "overview": ".gpu .spark",
    "api": "details[open] pre",
    "launches": "tbody tr",
    "launch": "figure svg polyline",
}
"""What comes when a page that asks again and again has asked."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawServer]:
    """A service with the bundled profiles, a job measured here, and a model that was promoted."""
    home = tmp_path_factory.mktemp("pages") / "home"
    home.mkdir()
    _fill(home)
    with raw_server(home) as server:
        yield server


def _fill(home: Path) -> None:
    on_h200 = (point for point in bundled_solo_points() if point.gpu_model == BUNDLED_MODEL)
    fft = [point for point in on_h200 if point.job == "fft"]
    mine = [dataclasses.replace(point, job="mine", run="mine") for point in fft]
    server = [_served(point) for point in fft]
    evil = dataclasses.replace(fft[0], job=EVIL, run="evil", flags=("throttled",))
    keep(home, *mine, *server, evil, _observation())
    registry = Registry(home / "models")
    with free_names():
        registry.add(_model(home / "draft"))
    registry.promote(VERSION)


def _served(point: SoloPoint) -> SoloPoint:
    """A point of a job that serves a demand which it meets from 30 % on."""
    short = point.share_percent < 30
    return dataclasses.replace(
        point,
        job="server",
        run="server",
        rate=90.0 if short else 120.0,
        offered_rate=120.0,
        latency_p50_ms=800.0 if short else 8.0,
        latency_p99_ms=900.0 if short else 21.0,
    )


def _model(folder: Path) -> Path:
    """The bundled model under another version, with an evaluation."""
    shutil.copytree(BUNDLED, folder)
    evaluation = EVALUATION.read_bytes()
    (folder / "evaluation.json").write_bytes(evaluation)
    manifest = read_artefact(BUNDLED).manifest
    files = {**manifest.files, "evaluation.json": hashlib.sha256(evaluation).hexdigest()}
    write_artefact(
        folder, Artefact(dataclasses.replace(manifest, version=VERSION, files=files), {})
    )
    return folder


def _observation() -> Observation:
    return observation(
        launch_id=LAUNCH,
        job_1="fft",
        job_2="resnet50-train-b2",
        share_1_percent=10.0,
        share_2_percent=90.0,
        rate_1=9959.0,
        rate_2=191.0,
        solo_rate_1=93917.0,
        solo_rate_2=184.0,
        power_w=254.0,
        work_per_joule=0.0045,
        model_version=VERSION,
        predicted_rate_1=10083.0,
        predicted_rate_2=192.0,
        predicted_power_w=252.0,
        predicted_work_per_joule=0.00457,
        energy_saved=0.081,
        predicted_energy_saved=0.094,
    )


def _launch(second: int = 0, **changes: Any) -> dict[str, Any]:
    around = [Interval(value, 0.9 * value, 1.1 * value) for value in (10083.0, 192.0, 252.0)]
    jobs = [
        JobStatus(
            job=job,
            rate_unit=unit,
            share_percent=share,
            units_granted=units,
            proven=True,
            outcome="running",
            steps=rate * second,
            rate=rate,
            relative_speed=rate / solo,
        )
        for job, unit, share, units, rate, solo in (
            ("fft", "transforms", 10.0, 12, 9930.0 + 150 * math.sin(second), 93917.0),
            ("resnet50-train-b2", "images", 90.0, 118, 191.0 + 3 * math.cos(second), 184.0),
        )
    ]
    status = LaunchStatus(
        launch_id=LAUNCH,
        state="running",
        updated_at=(datetime(2026, 1, 31, 12, tzinfo=UTC) + timedelta(seconds=second)).isoformat(),
        gpu_uuid="GPU-1",
        gpu_model="NVIDIA H200",
        jobs=tuple(jobs),
        forecast=Forecast(
            model_version=VERSION,
            jobs=(
                JobForecast(rate=around[0], solo_rate=93917.0),
                JobForecast(rate=around[1], solo_rate=184.0),
            ),
            power_w=around[2],
            work_per_joule=Interval(0.00457, 0.0039, 0.0054),
            coverage=0.9,
            energy_saved=Interval(0.094, 0.02, 0.16),
        ),
        energy_saved=0.08 + 0.01 * math.cos(second),
        power_w=254.0 + 5 * math.sin(second / 9),
        energy_j=254.0 * second,
        work_per_joule=0.0045 + 0.0001 * math.cos(second),
        overlap_s=float(second),
        started_at="2026-01-31T12:00:00+00:00",
        warnings=("the power is 1 % above what was predicted",),
    )
    return {**to_plain(dataclasses.replace(status, **changes)), "host": "gpu-1"}


def _ended(**changes: Any) -> dict[str, Any]:
    """The same when it is over: nothing of the last seconds, and all that was observed."""
    running = _launch(7200)
    jobs = [
        {**job, "outcome": "stopped", "rate": None, "relative_speed": None,
         "mean_rate": job["rate"], "mean_speed": job["relative_speed"]}
        for job in running["jobs"]
    ]  # fmt: skip
    ledger = Ledger(held_s=7200, energy_j=1.83e6, alone_s=8200, alone_j=2.2e6, freed_idle_j=0.5e6)
    return {
        **running, "state": "stopped", "jobs": jobs, "power_w": None, "energy_saved": None,
        "mean_power_w": 254.0, "mean_energy_saved": 0.081, "ledger": to_plain(ledger), **changes,
    }  # fmt: skip


def _history() -> dict[str, Any]:
    steps = range(100)
    history = History(
        started_at="2026-01-31T12:00:00Z",
        step_s=2.0,
        power_w=tuple(254.0 + 5 * math.sin(n / 9) for n in steps),
        energy_saved=tuple(0.08 + 0.01 * math.cos(n) for n in steps),
        jobs=tuple(
            JobHistory(job=job, speeds=tuple(speed + 0.01 * math.sin(n + speed) for n in steps))
            for job, speed in zip(PAIR, (0.106, 1.04), strict=True)
        ),
    )
    return {"launch_id": LAUNCH, "history": to_plain(history)}


def _overview() -> dict[str, Any]:
    """A GPU that is held, one that is free, and what one launch saved."""
    card = {"host": "gpu-1", "gpu_model": "NVIDIA H200", "units_total": 132, "power_limit_w": 700.0}
    held = {**card, "gpu_uuid": "GPU-1", "power_w": 254.0, "launch_id": LAUNCH}
    free = {**card, "gpu_uuid": "GPU-2", "power_w": 79.0, "launch_id": None}
    saved = Saved(
        since="2026-01-31T00:00:00+00:00", launches=3, uncounted=1, gpu_hours=2, kwh=0.508,
        gpu_hours_unread=0.1, gpu_hours_saved=1.5, kwh_saved=0.103, kwh_saved_idle=-0.036,
        idle_known=2, cost_saved=3.75,
    )  # fmt: skip
    running, ended = _launch(7200), _ended(launch_id="20260131-090000-000000")
    running["jobs"][1] |= {"latency_p99_ms": 21.0, "max_p99_ms": 20.0}
    kept = _history()["history"]
    return {
        "replayed": False,
        "at": "2026-01-31T14:00:00+00:00",
        "gpus": [held, free],
        "running": [{**running, "history": kept}],
        "ended": [{**ended, "history": kept}],
        "today": to_plain(saved),
        "week": to_plain(dataclasses.replace(saved, kwh_saved=1.2)),
    }


@pytest.fixture(scope="module")
def look(browser: Browser, served: RawServer) -> Iterator[Visit]:
    with visiting(browser, served.port) as visit:
        visit.play(
            "/v1/launches",
            {"launches": [_launch(), _ended(), _ended(state="failed", cause="gone")]},
        )
        visit.play(f"/v1/launches/{LAUNCH}", *(_launch(second) for second in range(0, 200, 10)))
        visit.play(f"/v1/launches/{LAUNCH}/history", _history())
        visit.play("/v1/overview", _overview())
        yield visit


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_every_page_is_whole_and_readable(look: Visit, name: str) -> None:
    """No error, no other host, no sideways scrolling, no pale text, and something to see.

    In light in a wide window, and in dark once that is as narrow as a phone.
    """
    look.problems.clear()
    _as_wide_as(look, 1280, "light")
    if name == "launch":
        _watch_two_minutes(look)
    else:
        look.open(PAGES[name])
    look.page.wait_for_selector(SEEN.get(name, "h1"))
    if name == "pair":
        look.page.press("#share-1", "ArrowRight")
    _is_whole(look, f"{name}-light")
    # 63 jobs in cells that a finger hits are wider than a page.
    assert look.cut() == [] or name == "matrix"
    assert look.weight() <= HEAVIEST
    assert look.violations() == []
    _as_wide_as(look, 360, "dark")
    _is_whole(look, f"{name}-phone")
    # Tables scroll in a narrow window, as in no wide one.
    assert (look.violations("scrollable-region-focusable"), look.problems) == ([], [])


def _as_wide_as(look: Visit, width: int, scheme: Literal["light", "dark"]) -> None:
    look.page.set_viewport_size({"width": width, "height": 900})
    look.page.emulate_media(color_scheme=scheme)


def _is_whole(look: Visit, called: str) -> None:
    assert len(picture(look.page, PICTURES / f"{called}.png")) > 15_000, "nearly blank"
    assert (look.page.locator("h1").count(), look.page.locator(".notice.failed").count()) == (1, 0)
    assert look.too_wide() <= 0
    assert look.pale() == []


def _watch_two_minutes(look: Visit) -> None:
    look.page.clock.install()
    look.open(PAGES["launch"])
    for _ in range(12):
        with look.page.expect_response(f"**/v1/launches/{LAUNCH}"):
            look.page.clock.run_for(1000)


def _answer(served: RawServer, path: str, **body: Any) -> dict[str, Any]:
    answer = served.ask("POST", path, json.dumps(body).encode(), JSON)
    assert answer.status == 200, answer.body
    return json.loads(answer.body)


def _recommendation(served: RawServer, **more: Any) -> dict[str, Any]:
    return _answer(served, "/v1/recommendations", **{"jobs": [{"job": j} for j in PAIR], **more})


def _shown(visit: Visit, key: str) -> float:
    return float(visit.page.get_attribute(f"#readout [data-key={key}]", "data-value") or "nan")


@pytest.mark.slow
def test_shares_move_by_keyboard_and_show_the_numbers_of_the_api(
    visit: Visit, served: RawServer
) -> None:
    """Every step of the slider shows what the API predicts there, and asks it for nothing."""
    ways = {way["split"]: way for way in _recommendation(served, every=True)["candidates"]}
    levels = {w["jobs"][0]["share_percent"] for w in ways.values() if w["sharing"] != "exclusive"}
    visit.open(PAGES["pair"])
    visit.page.focus("#share-1")
    visit.page.keyboard.press("Home")
    asked = len(visit.asked)
    for level in sorted(levels):
        option = ways[visit.text("#said").split(":")[0]]
        assert option["jobs"][0]["share_percent"] == level
        for key in ("power_w", "energy_saved", "stp"):
            assert _shown(visit, key) == option[key]["value"]
        for number, job in enumerate(option["jobs"], start=1):
            for key in ("speed", "rate"):
                assert _shown(visit, f"{key}_{number}") == job[key]["value"]
        assert f"--split {option['split']}" in visit.text("#command")
        for job in option["jobs"]:
            for name, value in job["environment"].items():
                environment = visit.page.text_content("#environment") or ""
                assert f"export {name}={value}\n" in environment
        visit.page.keyboard.press("ArrowRight")
    assert len(visit.asked) == asked


H200 = {"gpu_model": BUNDLED_MODEL}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pair", "verdict"),
    [
        (("bert-serve-10", "triad"), "share"),
        (("bert-train", "sorting"), "your call"),
        (("gemm", "triad"), "do not share"),
    ],
)
def test_the_verdict_is_that_of_the_api(
    visit: Visit, served: RawServer, pair: tuple[str, str], verdict: str
) -> None:
    """First, in the words of the command line, and the split that it is about is shown."""
    told = _recommendation(served, jobs=[{"job": job} for job in pair])
    assert told["verdict"] == verdict
    visit.open(f"/set?jobs={pair[0]}+{pair[1]}")
    assert visit.page.get_attribute("#headline", "data-verdict") == verdict
    said = _recommendation(served, jobs=[{"job": job} for job in pair], words=True)["said"]
    assert visit.text("#headline") == said["headline"]
    shown = "\n".join(visit.page.locator(".said dd").all_inner_texts()).replace("\u00a0", " ")
    assert shown == "\n".join(text for _, text in said["lines"])
    way = told["call"] or told["choice"] or {"split": "exclusive"}
    assert visit.text("#said").startswith(f"{way['split']}:")
    assert (visit.page.locator("button:has-text('For time')").count() == 1) == bool(told["call"])


def test_a_way_is_chosen_on_a_chart(visit: Visit) -> None:
    """On the charts over a share, and among all ways by what they save."""
    visit.open(PAGES["pair"], unfold=True)
    plot = visit.page.locator(".charts figure svg").first
    box = some(plot.bounding_box())
    plot.click(position={"x": box["width"] * 0.33, "y": 100})
    assert visit.text("#said").startswith("50/50:")
    for from_right, way, by_hand in (
        (224, "uncapped:", "without a percentage"),
        (160, "100:low/100:", "CUDA_MPS_CLIENT_PRIORITY=1"),
    ):
        plot.click(position={"x": box["width"] - 14 - from_right, "y": 100})
        assert visit.text("#said").startswith(way)
        assert by_hand in (visit.page.text_content("#environment") or "")
    for mark in visit.page.locator(".fold > figure .dot").all()[:3]:
        marked = some(mark.bounding_box())
        visit.page.mouse.click(marked["x"] + marked["width"] / 2, marked["y"] + 3)
        now = some(visit.page.locator(".fold > figure .now-dot").bounding_box())
        assert abs(now["x"] + now["width"] / 2 - marked["x"] - marked["width"] / 2) < 2


def test_the_marker_of_the_charts_reads_as_the_table_beside_it(
    visit: Visit, served: RawServer
) -> None:
    """Of two splits with the same first share the charts once showed the other one's numbers."""
    visit.open("/set?jobs=bert-serve-30+gemm", unfold=True)
    assert visit.text("#said").startswith("100/")
    read = visit.page.locator(".charts figure svg .text-now").all_text_contents()
    keys = ("speed_1", "speed_2", "power_w", "energy_saved", "stp")
    assert read == [visit.text(f"#readout [data-key={key}]") for key in keys]


def test_a_long_whisker_leaves_the_lines_their_height(visit: Visit) -> None:
    """The range of one split once made the axis of the energy go from -300 to 100 %."""
    visit.open("/set?jobs=gemm+vit-serve-30", unfold=True)
    figure = visit.page.locator(".charts figure:has-text('Energy saved') svg")
    line, whole = some(figure.locator("polyline").bounding_box()), some(figure.bounding_box())
    assert line["height"] > 0.1 * whole["height"]


@pytest.mark.slow
def test_it_is_said_where_a_way_was_measured(visit: Visit, served: RawServer) -> None:
    """Here, or before it came: at the very way that is chosen, and nothing where it was not."""
    path = f"/v1/sets/{'%2B'.join(PAIR)}/points"
    told = served.ask("GET", path).json
    assert not told["stored"]
    points = [point for point in told["bundled"] if point["gpu_model"] == BUNDLED_MODEL]
    for stored, words in (([], "that came with advisor"), (points, "measured here")):
        bundled = [] if stored else points
        visit.play(f"{path}*", {**told, "stored": stored, "bundled": bundled, "next": None})
        visit.open(PAGES["pair"])
        assert visit.text("#basis") == "At 100:low/100: predicted"
        visit.page.click("button:text-is('50/50')")
        assert words in visit.text("#basis")
        visit.page.unroute_all()


def test_limits_and_objective_are_asked_of_the_api(visit: Visit, served: RawServer) -> None:
    """A minimum speed, a ceiling and an objective give the API's answer; none is said in words."""
    visit.open(PAGES["pair"])
    visit.page.click("summary:has-text('Objective')")
    with visit.page.expect_response("**/v1/recommendations"):
        visit.page.fill("#field-minimum-speed-of-fft", "60")
        visit.page.press("#field-minimum-speed-of-fft", "Enter")
    limited = [{"job": job, **({"min_speed": 0.6} if job == "fft" else {})} for job in PAIR]
    choice = _recommendation(served, jobs=limited)["choice"]
    visit.page.wait_for_selector(f"button:has-text('Best: {choice['split']}')")
    with visit.page.expect_response("**/v1/recommendations"):
        visit.page.select_option("#field-objective", "max-min")
    found = _recommendation(served, objective="max-min", jobs=limited)
    visit.page.wait_for_selector(f"button:has-text('Best: {found['choice']['split']}')")
    assert "min=fft%3A60" in visit.page.url
    visit.page.fill("#field-power-ceiling-w", "1")
    visit.page.press("#field-power-ceiling-w", "Enter")
    visit.page.wait_for_selector("#results .notice.failed")
    assert "no-split" in visit.text("#results")
    assert visit.problems.pop().startswith("error: Failed to load resource")


@pytest.mark.slow
def test_jobs_say_what_each_is_like_and_beside_whom_it_does_best(
    visit: Visit, served: RawServer
) -> None:
    """In a line, by what the API says of all pairs, and sorted by it; the rest by another word."""
    told = _answer(served, "/v1/gains", **H200)
    visit.open("/jobs")
    visit.page.wait_for_selector("tbody a[href^='/set']")
    row = (
        visit.text("tr:has(> :first-child:has-text('bert-serve-30'))")
        .replace("\n", " ")
        .replace("\t", " ")
    )
    curve = next(job for job in told["jobs"] if job["job"] == "bert-serve-30")
    assert f"{curve['size']['share_percent']:g} % is enough" in row
    assert f"{curve['power_w']:.0f} W" in row
    drawn = visit.page.locator("tr:has(> :first-child:has-text('bert-serve-30')) svg").first
    assert f"at {curve['shares'][1]:g}\u00a0%" in (drawn.get_attribute("aria-label") or "")
    visit.page.select_option("#field-sort-by", "power")
    most = max((job for job in told["jobs"]), key=lambda job: job["power_w"])
    assert visit.text("tbody tr >> nth=0").startswith(most["job"])


def test_the_matrix_is_moved_over_by_arrows_and_leads_to_a_pair(
    visit: Visit, served: RawServer
) -> None:
    """Each cell says its pair's answer, that of the API; one of them can be reached by Tab."""
    told = _answer(served, "/v1/gains", **H200)
    visit.open("/matrix")
    assert visit.page.locator(".matrix a.cell").count() == len(told["jobs"]) ** 2
    assert visit.page.locator(".matrix a.cell[tabindex='0']").count() == 1
    cell = f".matrix a.cell[aria-label^='{PAIR[0]} and {PAIR[1]}:']"
    names = [job["job"] for job in told["jobs"]]
    at = [(a, b) for n, a in enumerate(names) for b in names[n:]].index(PAIR)
    said = (visit.page.get_attribute(cell, "aria-label") or "").replace("\u00a0", " ")
    assert f"{told['verdicts'][at]}, {told['splits'][at]}: " in said
    visit.page.select_option("#field-order", "name")
    visit.page.focus(f".matrix a.cell[aria-label^='{names[0]} and {names[0]}:']")
    visit.page.keyboard.press("ArrowRight")
    visit.page.keyboard.press("ArrowDown")
    visit.page.keyboard.press("ArrowLeft")
    assert visit.text("#said").startswith(f"{names[1]} and {names[0]}:")
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_selector("#headline")
    assert all(name in visit.text("main") for name in names[:2])


def test_savings_are_against_a_gpu_for_each_job() -> None:
    """A server runs one after the other with nothing; a queue has none, and jobs stop so."""
    scripts = (Path(__file__).parents[2] / "api/advisor_api/pages").glob("*.js")
    said = {path.name for path in scripts if "one after the other" in path.read_text().lower()}
    assert said == {"launch.js", "queue.js"}


def test_a_job_shows_its_partners_and_its_copies(visit: Visit, served: RawServer) -> None:
    """As many copies as the API advises, one too many, and the partners that save most first."""
    visit.open("/job?name=mobilenet-train-b2&gpu=NVIDIA H200")
    told = _recommendation(served, jobs=[{"job": "mobilenet-train-b2"}], **H200)["replicas"]
    copies = "table[aria-label=Copies] tbody tr"
    assert visit.page.locator(copies).count() == len(told["copies"])
    assert visit.text(f"{copies}.chosen").split()[0] == str(told["best"])
    saved = visit.page.locator("table[aria-label='Best partners'] tbody td:nth-of-type(3)")
    shown = [float(text.split("\u00a0")[0]) for text in saved.all_inner_texts()]
    assert (len(shown), shown) == (10, sorted(shown, reverse=True))


def test_foreign_names_and_errors_are_text(visit: Visit) -> None:
    visit.open("/jobs")
    assert EVIL in visit.text("main")
    visit.page.click(f"a:text-is({json.dumps(EVIL)})")
    visit.page.wait_for_selector(".notice.failed")
    assert (visit.text("h1"), visit.page.locator("main img").count()) == (EVIL, 0)
    assert "owned" not in visit.page.title().split("onerror")[0]
    assert visit.problems.pop().startswith("error: Failed to load resource")


def test_a_page_is_used_by_keyboard(visit: Visit) -> None:
    """The first Tab reaches the skip link, which leads to the content; focus can be seen."""
    visit.open("/jobs")
    visit.page.keyboard.press("Tab")
    assert visit.page.evaluate("document.activeElement.className") == "skip"
    assert visit.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    visit.page.keyboard.press("Enter")
    visit.page.keyboard.press("Tab")
    assert visit.page.evaluate("document.activeElement.closest('main') !== null")


@pytest.mark.slow
def test_a_token_is_asked_for_and_kept_in_the_tab_only(browser: Browser, tmp_path: Path) -> None:
    """A refused page asks for a token, sends it in a header only, and forgets it when told."""
    with raw_server(tmp_path / "home", "--no-anonymous-read") as served:
        with served.state() as state:
            _, secret = state.make_token("reader", ("read",))
        with visiting(browser, served.port) as visit:
            visit.open("/models")
            assert "wants a token" in visit.text("#token-panel")
            for token in ("adv_wrong", secret):
                visit.page.fill("#token", token)
                with visit.page.expect_navigation():
                    visit.page.keyboard.press("Enter")
                visit.drawn()
                if token != secret:
                    assert "does not know this token" in visit.text("#token-panel")
            assert visit.page.locator("tbody tr").count() >= 1
            assert visit.page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
            assert not [asked for asked in visit.asked if secret in asked]
            visit.page.click("#token-button")
            with visit.page.expect_navigation():
                visit.page.click("text=Forget it")
            assert visit.page.evaluate("sessionStorage.length") == 0
        assert secret not in served.log.read_text()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/", ["No GPU is seen", "advisor serve --demo"]),
        ("/launches", ["advisor launch A B", "advisor serve --launching"]),
        ("/set?jobs=nosuch+triad", ["There is no profile of nosuch"]),
    ],
)
def test_a_page_with_nothing_to_show_says_what_to_do(
    visit: Visit, path: str, words: list[str]
) -> None:
    """Another job in the place of one without a profile would look like an answer."""
    visit.page.goto(visit.origin + path)
    visit.page.wait_for_selector("main .notice")
    assert [word for word in words if word in visit.text("main")] == words


def test_a_launch_that_is_refused_says_why(visit: Visit) -> None:
    visit.open(PAGES["pair"])
    visit.page.click("button:has-text('Launch at')")
    assert "POST /v1/launches" not in visit.asked
    visit.page.click("dialog >> text='Launch'")
    visit.page.wait_for_selector("#token")
    assert visit.page.locator(".notice.failed").count() == 1
    assert visit.asked.count("POST /v1/launches") == 1
    assert visit.problems.pop().startswith("error: Failed to load resource")


@pytest.mark.slow
def test_a_launch_is_followed_and_stopped_after_asking_back(visit: Visit) -> None:
    """Predicted stands next to observed; Cancel stops nothing; the end ends the polling."""
    visit.play(f"/v1/launches/{LAUNCH}/history", {"launch_id": LAUNCH, "history": None})
    methods = visit.play(f"/v1/launches/{LAUNCH}", _launch())
    visit.page.goto(visit.origin + PAGES["launch"])
    row = "tr:has-text('fft, transforms')"
    visit.page.wait_for_selector(row)
    assert all(part in visit.text(row) for part in ("10,083", "9,930", "\u22121.5 %"))
    visit.page.click("#stop")
    visit.page.click("dialog >> text=Cancel")
    assert "DELETE" not in methods
    visit.page.click("#stop")
    visit.page.click("dialog >> text=Stop them")
    visit.page.wait_for_selector("#stop[disabled]")
    assert methods.count("DELETE") == 1
    failed = _launch(3, state="failed", code="job-hung", cause="fft made no progress for 120 s")
    last = visit.play(f"/v1/launches/{LAUNCH}", failed)
    visit.page.wait_for_selector(".notice.failed")
    assert "fft made no progress for 120 s (job-hung)" in visit.text("main")
    assert visit.page.locator("#stop").is_hidden()
    visit.page.wait_for_timeout(1500)
    assert last == ["GET"]


def test_an_ended_launch_shows_what_was_observed(visit: Visit) -> None:
    """In the list and on its page, with its charts, and with a miss and why: all was gone once."""
    visit.play("/v1/launches", {"launches": [_ended()]})
    visit.page.goto(visit.origin + PAGES["launches"])
    visit.page.wait_for_selector("tbody tr")
    row = visit.text("tbody tr")
    for words in ("10.5 %, 105 %", "254 W", "8.1 % (9.4 %)", "2 h"):
        assert words in row
    visit.play(f"/v1/launches/{LAUNCH}", _ended(mean_energy_saved=0.01, mean_power_w=290.0))
    visit.play(f"/v1/launches/{LAUNCH}/history", _history())
    visit.page.goto(visit.origin + PAGES["launch"])
    visit.page.wait_for_selector("figure svg polyline")
    shown = visit.text("main")
    for words in (
        "Missed: it saves 1 % of",
        "It draws 290 W, at most 277 W",
        "508 Wh",
        "Saved in all",
        "103 Wh",
        "17 min",
        "+15 %",
    ):
        assert words in shown
    assert "Power now" not in shown
    beside = visit.text("table[aria-label='Predicted beside observed'] tbody")
    assert "\u2013" not in beside.replace("Energy saved", "")


def test_the_overview_shows_who_runs_where_and_what_was_saved(
    visit: Visit, served: RawServer
) -> None:
    """Speeds beside predictions, p99 beside its promise, watts beside the limit; in 150 kB."""
    visit.play("/v1/overview", _overview())
    visit.page.goto(visit.origin + "/")
    visit.page.wait_for_selector(".gpu .spark")
    tiles = visit.text(".tiles")
    for words in (
        "103 Wh",
        "1.2 kWh this week",
        "1 h 30 min",
        "3.75",
        "1 of 2",
        "333 W of 1,400 W",
    ):
        assert words in tiles
    for words in ("Not counted this week: 1 launch", "Energy not known for 6 min"):
        assert words in visit.text("main")
    assert "36 Wh more were taken" in visit.text("main")
    held, free = visit.page.locator(".gpu").all_inner_texts()
    for words in ("254 W of 700 W", "130 of 132 SMs", "as predicted", "10.7 % predicted", "(2 h)"):
        assert words in held.replace("\u00a0", " ")
    assert visit.text(".seats .bad") == "p99 21 ms of 20 promised"
    assert "free" in free
    row = visit.text("table[aria-label='Ended launches'] tbody")
    for words in ("10.5 % (10.7 %)", "254 W (252 W)", "8.1 % (9.4 %)", "103 Wh"):
        assert words in row
    sent = [path.partition(" ")[2] for path in visit.asked if "/v1/" not in path]
    assert sum(len(served.ask("GET", path).body) for path in sent) < 150_000


def test_who_reads_the_overview_by_keyboard_stays_where_they_are(visit: Visit) -> None:
    """It is drawn again every two seconds, and what has the focus keeps it."""
    visit.page.clock.install()
    first, second = _overview(), _overview()
    second["gpus"][0]["power_w"] = 300.0
    second["ended"][0]["mean_power_w"] = 299.0
    visit.play("/v1/overview", first, second)
    visit.page.goto(visit.origin + "/")
    for place in (".gpu a", "td a, th a"):
        visit.page.focus(place)
        with visit.page.expect_response("**/v1/overview"):
            visit.page.clock.run_for(2100)
        visit.page.wait_for_selector("text=300 W of 700 W")
        visit.page.wait_for_selector("text=299 W")
        assert visit.page.evaluate("document.activeElement.tagName") == "A"


def test_a_model_shows_its_figures_by_job_and_in_launches(visit: Visit) -> None:
    """Fractions of the oracle by job, and predicted against observed of its launches."""
    jobs = json.loads(EVALUATION.read_bytes())["jobs"]
    every = (
        "job",
        "gpu_model",
        "launch_bound",
        "sm_active_percent",
        "bars",
        "own",
        "beside",
        "power",
    )
    assert {tuple(job) for job in jobs} == {every}
    visit.open(PAGES["model"])
    shown = visit.page.locator("table[aria-label='Job by job'] tbody tr").all_inner_texts()
    models = {job["gpu_model"] for job in jobs}
    rows = {(row.split()[0], next(m for m in models if m in row)): row for row in shown}
    assert (len(models), len(rows)) == (2, len(shown))
    for job in jobs:
        fraction = job["bars"]["energy-efficiency"]["fraction_percent"]
        assert f"{float(f'{fraction:.3g}'):g}" in rows.pop((job["job"], job["gpu_model"]))
    assert not rows
    assert "254 W" in visit.text(f"tr:has-text('{LAUNCH}')")
    assert visit.page.locator("figure svg .measured").count() == 3
    assert "promoted" in visit.text("main")


def test_models_lead_with_what_they_save(visit: Visit) -> None:
    """Over all pairs of the evaluation, and no figure of a model is told by its key."""
    bars = [job["bars"]["energy-efficiency"] for job in json.loads(EVALUATION.read_bytes())["jobs"]]
    count = sum(bar["choices"] for bar in bars)
    gain = sum(bar["choices"] * bar["gain_percent"] for bar in bars) / count / 100
    for page in (PAGES["models"], PAGES["model"]):
        visit.open(page)
        first = visit.text("#worth > div >> nth=0")
        assert all(part in first for part in (f"{100 * (1 - 1 / (1 + gain)):.1f} %", "less energy"))
    said = visit.page.locator("table[aria-label=Figures] tbody th").all_text_contents()
    assert len(said) == len(read_artefact(BUNDLED).manifest.figures) > 10
    assert not [text for text in said if text.endswith("percent")]


@pytest.mark.slow
def test_a_queue_is_planned_and_drawn(visit: Visit, served: RawServer) -> None:
    """A bar for each job, as the API places it; a plan that was made before is drawn alike."""
    jobs = [{"job": "bert-infer-b2", "count": 2}, {"job": "triad", "work_s": 7200}]
    plan = _answer(served, "/v1/placements", jobs=jobs, gpus=2, **H200)
    visit.open("/queue?gpus=2&gpu=NVIDIA H200")
    visit.page.fill("#queue", "bert-infer-b2:1 triad*1 2h  # small\n\nbert-infer-b2")
    visit.page.click("#place")
    visit.page.wait_for_selector(".gantt rect")
    assert visit.page.locator(".gantt rect").count() == len(plan["queue"]["schedule"]) == 3
    titles = visit.page.locator(".gantt rect title").all_text_contents()
    assert sorted(title.split(" (")[0] for title in titles) == ["bert-infer-b2"] * 2 + ["triad"]
    assert visit.text("#headline").startswith("3 jobs on 2 ")
    visit.page.fill("#queue", "triad x 3")
    visit.page.click("#place")
    visit.page.wait_for_selector("#results .notice.failed")
    assert "is no line of a queue" in visit.text("#results")
    visit.page.click("summary:has-text('Or draw a plan')")
    visit.page.fill("#plan", '{"sets": [], "queue": null}')
    visit.page.click("#draw")
    visit.page.wait_for_selector("#results .notice:has-text('run together')")
    # An end on the hour, whose time is to be whole under the end of the axis.
    whole = plan | {"queue": plan["queue"] | {"makespan_s": 10_800.0}}
    for text, shown in (("{}", ".notice.failed"), (json.dumps(whole), ".gantt rect")):
        visit.page.fill("#plan", text)
        visit.page.click("#draw")
        visit.page.wait_for_selector(f"#results {shown}")
    box = "(one) => one.getBoundingClientRect().right"
    last = visit.page.locator(".gantt svg text").filter(has_text=re.compile("^3.h$"))
    assert last.evaluate(box) <= visit.page.locator(".gantt svg").evaluate(box)


def test_a_unit_is_not_parted_at_its_slash(visit: Visit) -> None:
    """Of a rate only its last letter once stood in the next line."""
    visit.open("/job?name=bert-serve-30&gpu=NVIDIA H200")
    lines = (
        visit.page.locator(".facts dd")
        .filter(has_text="sequences")
        .first.evaluate(
            """(one) => {
            const range = document.createRange();
            const text = one.firstChild;
            range.setStart(text, text.length - 3);
            range.setEnd(text, text.length);
            return new Set([...range.getClientRects()].map((box) => box.top)).size;
        }"""
        )
    )
    assert lines == 1


def test_pages_use_the_words_of_the_package(visit: Visit) -> None:
    visit.open("/jobs")
    assert visit.page.evaluate("import('/pages/flags.js').then((m) => m.FLAGS)") == FLAGS
    assert set(visit.page.evaluate("import('/pages/flags.js').then((m) => m.WRONG)")) == WRONG
    known = visit.page.evaluate("import('/pages/set_view.js').then((m) => m.OBJECTIVES)")
    assert set(known) == set(OBJECTIVES)
    model = visit.page.evaluate("import('/pages/gains.js').then((m) => m.BUNDLED_MODEL)")
    assert model == BUNDLED_MODEL
    spans = [0.0, 0.25, 45.0, 119.0, 150.0, 3599.0, 6000.0, 8160.0, 172_790.0, 273_600.0]
    said = visit.page.evaluate(
        "(spans) => import('/pages/numbers.js').then((m) => spans.map(m.duration))", spans
    )
    assert said == list(map(duration_text, spans))


def test_files_are_sent_safely_and_once(served: RawServer) -> None:
    """Unchanged files have no body, and no path leaves their folder."""
    page = served.ask("GET", "/set")
    assert page.status == 200
    again = served.ask("GET", "/set", headers={"If-None-Match": page.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    zipped = served.ask("GET", "/set", headers={"Accept-Encoding": "gzip"})
    assert zipped.headers["content-encoding"] == "gzip"
    assert gzip.decompress(zipped.body) == page.body
    for path in ("/pages/shell.html", "/pages/nothing.js", "/pages/..%2fapp.py", "/pages/"):
        answer = served.ask("GET", path)
        assert answer.status in (400, 404), path
        assert answer.code in ("bad-request", "not-found")
