"""Text that somebody else stored, in what commands print: it is text, whatever is in it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Advisor, in_this_process

from advisor_cli.shared.console import plain_console, plain_table, print_table
from advisor_data import open_store
from advisor_data.files.bundled import bundled_solo_points

MARKUP = ("[/b]", "[red]x[/red]", "[link=http://evil]y[/link]", ":smile:", "[bold")


@pytest.fixture
def advisor(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Advisor:
    return in_this_process(capsys, monkeypatch, tmp_path)


@pytest.mark.parametrize("unit", MARKUP)
def test_a_unit_with_markup_is_printed_as_it_is(
    advisor: Advisor, tmp_path: Path, unit: str
) -> None:
    """What a `write` token may store neither ends a recommendation nor vanishes from it."""
    with open_store(None, tmp_path / "home") as store:
        mine = (p for p in bundled_solo_points() if p.job == "fft")
        store.add(replace(p, job="mark", rate_unit=unit, run=unit) for p in mine)
    for words in (["recommend", "mark", "resnet50-train-b2"], ["jobs"]):
        said = advisor(*words)
        assert (said.code, said.err) == (0, "")
    assert (
        f"{unit}/s"
        in advisor("recommend", "mark", "resnet50-train-b2", "--objective", "throughput").out
    )


@pytest.mark.parametrize("text", MARKUP)
def test_tables_and_lines_hold_markup_as_text(
    capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """Cells, headings and lines of every command."""
    print_table(plain_table([text], [[text]]))
    plain_console().print(text)
    assert capsys.readouterr().out.count(text) == 3


def test_no_command_has_a_console_of_its_own() -> None:
    """Each would have to switch markup off by itself."""
    folder = Path(__file__).parents[2] / "api" / "advisor_cli"
    own = {p.name for p in folder.rglob("*.py") if re.search(r"\bConsole\(", p.read_text())}
    assert own == {"console.py"}
