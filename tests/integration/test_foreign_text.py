"""Text that somebody else stored, in what commands print: it is text, whatever is in it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Advisor

from advisor_cli.shared.console import plain_console, plain_table, print_table
from advisor_data import open_store
from advisor_data.files.bundled import bundled_solo_points

MARKUP = "[/b] [red]x[/red] [link=http://evil]y[/link] :smile: [bold"


def test_a_unit_with_markup_is_printed_as_it_is(advisor: Advisor, tmp_path: Path) -> None:
    """What a `write` token may store neither ends a recommendation nor vanishes from it."""
    with open_store(None, tmp_path / "home") as store:
        mine = (p for p in bundled_solo_points() if p.job == "fft")
        store.add(replace(p, job="mark", rate_unit=MARKUP) for p in mine)
    said = advisor("recommend", "mark", "resnet50-train-b2", "--objective", "throughput", "--why")
    assert (said.code, said.err) == (0, "")
    assert f"{MARKUP}/s" in " ".join(said.out.split())
    assert advisor("jobs").code == 0


def test_tables_and_lines_hold_markup_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    """Cells, headings and lines of every command."""
    print_table(plain_table([MARKUP], [[MARKUP]]))
    plain_console(width=200).print(MARKUP)
    assert capsys.readouterr().out.count(MARKUP) == 3


def test_no_command_has_a_console_of_its_own() -> None:
    """Each would have to switch markup off by itself."""
    folder = Path(__file__).parents[2] / "api" / "advisor_cli"
    own = {p.name for p in folder.rglob("*.py") if re.search(r"\bConsole\(", p.read_text())}
    assert own == {"console.py"}
