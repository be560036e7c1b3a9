"""The analysis as a whole: JSON, sentences, figures, the page."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import synthetic_pairs as made_up
from simple_pairs import SOLOS, nine, pair, solo

from advisor.core.objectives import OBJECTIVES
from advisor.core.records import PairPoint
from advisor.errors import InputError, StoreError
from advisor_training.analysis.analysis import Analysis, analyse, to_json
from advisor_training.dataset.pairs import LeftOut
from advisor_training.reports import dataset_figures, document
from advisor_training.reports.dataset_report import page as to_html
from advisor_training.reports.dataset_report import write_report
from advisor_training.reports.dataset_sentences import (
    axis_sentence,
    headline,
    not_measured,
    replay_note,
    said,
    solo_sentence,
    where_it_pays,
    where_sharing_loses,
    who_gets_more,
    who_pays,
)

pytestmark = pytest.mark.figures

MARKUP = 'x"><script>alert(1)</script>&'
FLAT = dict.fromkeys(range(10, 100, 10), 1.0)


def made_up_analysis() -> Analysis:
    """All made-up pairs, twice, with noise; one of them on the finer grid."""
    points = [
        *made_up.pair_points(run="first", noise=0.01, seed=1),
        *made_up.pair_points(run="second", noise=0.01, seed=2),
        *made_up.grid_points(made_up.MIDDLE, made_up.SLOW, range(20, 60, 2)),
    ]
    return analyse(points, made_up.solo_points(), [LeftOut("flagged throttled", 3)])


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return made_up_analysis()


@pytest.fixture(scope="module")
def written(analysis: Analysis, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """The report's files, drawn once for all tests: drawing is slow."""
    return write_report(analysis, tmp_path_factory.mktemp("report") / "a" / "b")


@pytest.fixture(scope="module")
def page(written: tuple[Path, ...]) -> str:
    return written[0].read_text("utf-8")


@pytest.fixture(scope="module")
def little_page() -> str:
    """One pair, measured once, without counters; one of the jobs has a name like markup."""
    return to_html(analyse(nine(job_1=MARKUP), [solo(MARKUP), solo("b")]))


def small(points: list[PairPoint] | None = None) -> Analysis:
    """One pair, measured once."""
    return analyse(points or nine({**FLAT, 20: 1.5}), SOLOS)


def test_json_keys_are_stable(analysis: Analysis) -> None:
    """Other programs read these keys; taking one away needs a new schema number."""
    plain = json.loads(json.dumps(to_json(analysis), allow_nan=False))
    assert plain["schema"] == 2
    assert _keys(plain) == {
        "schema", "gpu_models", "cards", "runs", "pair_points", "replayed_points",
        "points_by_kind", "flags", "solo_sources", "left_out", "jobs", "pairs", "objectives",
        "paper",
    }  # fmt: skip
    assert _keys(plain["points_by_kind"]) == {
        "nine", "grid", "over-subscribed", "other", "uncapped", "time-sliced",
    }  # fmt: skip
    assert _keys(plain["solo_sources"]) == {"same run", "same card", "same model"}
    assert plain["left_out"] == [{"reason": "flagged throttled", "points": 3}]
    assert _keys(plain["jobs"][0]) == {
        "job", "gpu_model", "code", "sm_active_percent", "memory_percent", "memory_counter",
        "code_by_other_counter",
    }  # fmt: skip
    assert _keys(plain["pairs"][0]) == {
        "jobs", "gpu_model", "gpu_uuid", "run", "solo_source", "group", "measurements",
        "objectives",
    }  # fmt: skip
    assert _keys(plain["pairs"][0]["objectives"]) == set(OBJECTIVES)
    assert _keys(plain["pairs"][0]["objectives"]["throughput"]) == {
        "best_split", "beyond_noise", "direction", "slower_percent", "slower_at_equal_percent",
        "oracle_percent", "uncapped_percent",
        "time_sliced_percent", "exclusive_percent",
    }  # fmt: skip
    assert _keys(plain["paper"]) == {"title", "groups", "figures"}


def test_json_keys_of_an_objective_are_stable(analysis: Analysis) -> None:
    """As above, for each objective."""
    reports = json.loads(json.dumps(to_json(analysis)))["objectives"]
    assert _keys(reports) == set(OBJECTIVES)
    report = reports["throughput"]
    assert _keys(report) == {
        "name", "meaning", "unit", "ceiling", "uneven_pays_pairs", "uneven_pays_percent",
        "best_splits", "gains", "job_gains", "groups", "losses", "grid",
    }  # fmt: skip
    assert _keys(report["ceiling"]) == {
        "pairs", "other_card_pairs", "choices", "mean_percent", "median_percent", "p10_percent",
        "worst_percent", "noise_percent",
    }  # fmt: skip
    assert [b["larger_share_percent"] for b in report["best_splits"]] == [50, 60, 70, 80, 90]
    assert _keys(report["best_splits"][0]) == {
        "larger_share_percent", "to_busier", "to_other", "undirected",
    }  # fmt: skip
    assert [g["baseline"] for g in report["gains"]] == [
        "equal", "uncapped", "time-sliced", "exclusive",
    ]  # fmt: skip
    assert _keys(report["gains"][0]) == {
        "baseline", "pairs", "zero_pairs", "mean_percent", "median_percent", "most_percent",
        "least_percent", "loses_percent",
    }  # fmt: skip
    assert _keys(report["job_gains"]) == {"jobs", "mean_percent", "most_percent", "least_percent"}
    assert _keys(report["groups"][0]) == {
        "classes", "paper_number", "paper_certain", "paper_gain_percent", "paper_note", "pairs",
        "mean_percent", "median_percent", "of_means_percent", "at_90_10_percent",
        "second_gets_90_percent",
    }  # fmt: skip
    assert _keys(report["losses"][0]) == {
        "jobs", "gpu_uuid", "run", "best_shared", "loss_percent", "solo_source",
    }  # fmt: skip
    assert _keys(report["grid"]) == {
        "pairs", "above_noise_pairs", "mean_percent", "median_percent", "most_percent",
    }  # fmt: skip


def test_counts_follow_from_the_points(analysis: Analysis) -> None:
    """Fifteen pairs of five jobs at nine splits and three more, twice, and one finer grid."""
    assert (analysis.cards, analysis.runs, len(analysis.pairs), len(analysis.jobs)) == (1, 2, 15, 5)
    # 50 % of 132 units is 66: the grid has 20, 22, .. 58 and no 66.
    assert analysis.points_by_kind == {
        "nine": 270, "grid": 20, "over-subscribed": 30, "other": 0, "uncapped": 30,
        "time-sliced": 30,
    }  # fmt: skip
    assert analysis.pair_points == sum(analysis.points_by_kind.values())
    assert analysis.solo_sources == {"same run": 0, "same card": 30, "same model": 0}
    assert all(found.measurements == 2 for found in analysis.pairs)


def test_uneven_pays_and_the_histogram_agree(analysis: Analysis) -> None:
    """The headline's count is the histogram without its 50/50."""
    for report in analysis.objectives.values():
        even = report.best_splits[0]
        assert even.undirected + report.uneven_pays_pairs == len(analysis.pairs)
        beyond = sum(found.objectives[report.name].beyond_noise for found in analysis.pairs)
        assert beyond == report.uneven_pays_pairs


def test_nothing_to_analyse_says_why() -> None:
    """The reasons are counted, and the fix is named."""
    with pytest.raises(InputError, match=r"2 pair points.*2: without 50/50.*nine splits"):
        analyse([pair(10, 90), pair(50, 50)], SOLOS)


def test_the_headline_is_computed() -> None:
    """Other data, other numbers; without repeats no claim about noise."""
    assert headline(small()) == (
        "An uneven split beats 50/50 in 1 of 1 pair (by any amount: the noise is not known). The "
        "best of the nine splits does 50.0 % more work per joule on average, 50.0 % at most."
    )
    assert headline(small(nine(FLAT))).startswith("An uneven split beats 50/50 in 0 of 1 pair (")
    repeated = small([*nine({**FLAT, 20: 1.2}), *nine({**FLAT, 20: 1.2}, repeat=1)])
    assert "by more than the noise (0.0 %) in 1 of 1 pair. The best" in headline(repeated)


def test_sentences_about_sharing(analysis: Analysis) -> None:
    """Losing pairs are counted; where it pays is said only where there are pairs enough."""
    assert where_sharing_loses(analysis).startswith("In 1 of 15 pairs one after the other beats")
    assert where_sharing_loses(small()).startswith("In none of 1 pair one after the other")
    assert where_it_pays(small()) == ""
    assert re.fullmatch(
        r"It pays most for .+ \([+-][\d.]+ % over \d pairs\), and least for .+\.",
        where_it_pays(analysis),
    )


def test_a_loss_counts_beyond_the_noise() -> None:
    """3 % less than one after the other is a tie where takes differ by 5 %; 20 % less is not."""
    for worth, sentence in (
        (0.97, "In none of 1 pair one after the other beats every shared split by more than"),
        (0.80, "In 1 of 1 pair one after the other beats every shared split by more than"),
    ):
        take = dict.fromkeys(FLAT, worth)
        again = {**dict.fromkeys(FLAT, 0.95 * worth), 50: worth}
        found = small([*nine(take), *nine(again, repeat=1)])
        assert where_sharing_loses(found) == f"{sentence} the noise (5.0 %), per joule."
        gains = found.objectives["throughput-per-watt"].gains
        assert [g.loses_percent for g in gains if g.baseline == "exclusive"] == [
            100 * (worth < 0.95)
        ]
    unknown = where_sharing_loses(small(nine(dict.fromkeys(FLAT, 0.97))))
    assert unknown == "In 1 of 1 pair one after the other beats every shared split, per joule."


def test_who_gets_more_is_said() -> None:
    """The job with the lower SM activity alone is the less busy one; without counters, silence."""
    solos = [solo("a", sm_active_percent=90.0), solo("b", sm_active_percent=20.0)]
    for best, lighter, busier in ((20, "1 pair", 0), (80, "0 pairs", 1)):
        said = who_gets_more(analyse(nine({**FLAT, best: 1.5}), solos))
        assert f"fewer SMs busy alone in {lighter}, to the busier one in {busier}." in said
    assert who_gets_more(analyse(nine(FLAT), solos)) == ""
    assert who_gets_more(small()) == ""


def test_what_the_gain_costs_is_said() -> None:
    """More work per joule may come from one job nearly standing still; the reader is told."""
    best = pair(10, 90, rate_1=0.05, rate_2=0.95, power_w=50.0)
    found = small([best, *[p for p in nine(FLAT) if p.shares_percent[0] != 10]])
    assert who_pays(found) == (
        "The slower of the two jobs then runs at 5 % of its speed alone in the median, where 50/50 "
        "gives it 50 %."
    )
    assert who_pays(small(nine(FLAT))) == ""


def test_what_was_not_measured_is_said(analysis: Analysis) -> None:
    """Nobody takes a missing measurement for a missing effect."""
    assert not_measured(small()) == (
        "Not measured: any pair twice, so how much of a gain is noise is not known; uncapped; "
        "time-sliced; exact counts of units."
    )
    assert not_measured(analysis) == ""


def test_replayed_points_are_called_so() -> None:
    """A report over replayed points says it first, and how many they are."""
    replayed = small(nine(source="replay"))
    assert replayed.replayed_points == 9
    assert said(replayed)[0] == "REPLAY: all 9 pair points are replays of recorded ones."
    assert "REPLAY: all 9 pair points" in to_html(replayed)
    mixed = small([*nine(source="replay"), *nine(source="nvml", repeat=1)])
    assert replay_note(mixed) == "REPLAY: 9 of 18 pair points are replays of recorded ones."
    assert replay_note(small()) == ""


def test_flags_of_used_points_are_counted() -> None:
    """What describes a job stays in, and the page says how often."""
    marked = small([*nine(flags=("throttled", "noisy-rate")), pair(60, 40, flags=("throttled",),
                    repeat=1)])  # fmt: skip
    assert marked.flags == {"throttled": 10, "noisy-rate": 9}
    assert "<td>throttled</td><td>10</td>" in to_html(marked)


def test_dots_are_coloured_by_who_gets_more() -> None:
    """The first figure tells the lighter job, the busier one, a job next to itself, and a tie."""
    solos = [solo("a", sm_active_percent=90.0), solo("b", sm_active_percent=20.0)]
    for points, label in (
        (nine({**FLAT, 20: 1.5}), "larger share to the less busy job"),
        (nine({**FLAT, 80: 1.5}), "to the busier job"),
        (nine(FLAT), "50/50 is as good"),
        (nine({**FLAT, 80: 1.5}, job_2="a"), "a job beside itself, or not known"),
    ):
        assert dataset_figures.favours(analyse(points, solos).pairs[0]) == label


def test_sentences_about_sources(analysis: Analysis) -> None:
    """Where solo rates come from and what the memory axis is stand on the page."""
    assert "0 same run, 30 same card, 0 same model" in solo_sentence(analysis)
    assert "memory by dram_active_percent" in axis_sentence(analysis)
    doubtful = [
        solo(job, sm_active_percent=80, memory_busy_percent=55, dram_active_percent=45)
        for job in ("a", "b")
    ]
    assert "a (HL, or HH), b (HL, or HH)" in axis_sentence(analyse(nine(), doubtful))
    assert "no counter" in axis_sentence(small())


def test_nothing_known_is_a_dash() -> None:
    """A number that is not there is not 0."""
    assert document.signed(None) == "-"
    assert document.signed(-3.14) == "-3.1 %"


class _Reader(HTMLParser):
    """Collects what matters of a page, and fails on tags that do not match."""

    void = frozenset({"meta", "br", "img", "link"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.identities: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open += [] if tag in self.void else [tag]
        self._collect(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._collect(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def _collect(self, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.identities += [given["id"]] if "id" in given else []
        self.links += [given[name] for name in ("src", "href", "xlink:href") if name in given]


def read(page: str) -> _Reader:
    """The page, parsed to its end."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def test_the_page_needs_no_other_file(page: str) -> None:
    """It opens from a mail or a disk without a network: links stay inside the page."""
    reader = read(page)
    assert page.count("<svg ") == 5
    assert reader.links
    assert all(link.startswith("#") and link[1:] in reader.identities for link in reader.links)
    assert len(reader.identities) == len(set(reader.identities))
    assert not re.findall(r"url\((?!#)|@import|<script|<link", page)
    assert set(re.findall(r"url\(#([^)]*)\)", page)) <= set(reader.identities)


def test_the_page_follows_the_reader(page: str) -> None:
    """Dark and light, narrow and wide; figures take the page's colours."""
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page
    assert document.SVG_INK.text not in page
    assert document.SVG_INK.faint not in page
    texts = re.findall(r"<text [^>]*>", page)
    assert texts
    assert all("fill: currentColor" in text for text in texts)


def test_the_page_says_what_was_found(analysis: Analysis, page: str) -> None:
    """Headline, ceiling, groups with the paper's numbers, losing pairs, what was left out."""
    text = " ".join("".join(read(page).text).split())
    assert headline(analysis) in text
    ceiling = analysis.objectives["throughput-per-watt"].ceiling
    assert ceiling is not None
    assert f"{ceiling.mean_percent:.2f} %" in text
    assert "Measured twice or more: 15 pairs, 0 of them on several cards" in text
    assert "<td>HH with HH (group 1?)</td><td>+65.7 %</td>" in page
    loss = analysis.objectives["throughput-per-watt"].losses[0]
    assert f"-{loss.loss_percent:.1f} %" in text
    assert (
        f"1 by throughput-per-watt by more than the noise ({ceiling.noise_percent:.1f} %)" in text
    )
    assert "against one after the other" in text
    assert not re.search(r"\bturns\b", text)
    assert "the other way by more than the noise" in text
    assert "flagged throttled" in text


def test_the_page_of_little_data(little_page: str) -> None:
    """One pair, once, without counters: what is not known is said."""
    text = "".join(read(little_page).text)
    assert "the other way; the noise is not known." in text
    assert "by more than the noise" not in text
    assert "Not known: no pair was measured twice." in text
    assert "No pair was measured at exact counts of units" in text
    assert "Nothing was left out." in text


def test_names_cannot_break_the_page(little_page: str) -> None:
    """A job may be called anything that a column can hold."""
    assert MARKUP in "".join(read(little_page).text)
    assert "<script" not in little_page


def test_the_files_are_the_same_for_the_same_data(
    written: tuple[Path, ...], tmp_path: Path
) -> None:
    """A report can be compared with the last one; the image is a PNG of some size."""
    first = [path.read_bytes() for path in written]
    again = [path.read_bytes() for path in write_report(made_up_analysis(), tmp_path / "c")]
    assert first == again
    html, png = first
    assert html.startswith(b"<!doctype html>")
    assert png.startswith(b"\x89PNG\r\n")
    assert len(png) > 50_000
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == [
        "dataset.html",
        "dataset.png",
    ]


def test_a_folder_that_cannot_be_made_is_named(
    analysis: Analysis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the folder and the option."""

    def draw_nothing(*_given: object) -> bytes:
        return b""

    # What is drawn does not matter here, and drawing is slow.
    monkeypatch.setattr("advisor_training.reports.dataset_report.to_png", draw_nothing)
    monkeypatch.setattr("advisor_training.reports.dataset_report.figures", draw_nothing)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"file/report.*--out"):
        write_report(analysis, tmp_path / "file" / "report")


def _keys(value: dict[str, Any]) -> set[str]:
    return set(value)
