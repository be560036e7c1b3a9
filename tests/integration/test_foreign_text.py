"""Text that somebody else stored, in what commands print: it is text, whatever is in it."""

import json
import logging
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Advisor
from host import FAKES, FakeHost

from advisor.core.wording import JsonFormatter, PrintableFormatter
from advisor.formats.rows import to_row
from advisor_cli.console import plain_console, plain_table, print_table
from advisor_data import open_store
from advisor_data.bundled import bundled_solo_points

ROOT = Path(__file__).parents[2]
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
    """Cells, headings and lines of every command; a cell is no row."""
    print_table(plain_table([MARKUP], [[MARKUP + "\nb"]]))
    plain_console(width=200).print(MARKUP)
    said = capsys.readouterr().out
    assert (said.count(MARKUP), said.count("\n"), r"\nb" in said) == (3, 3, True)


def test_no_command_has_a_console_of_its_own() -> None:
    folder = ROOT / "api" / "advisor_cli"
    own = {p.name for p in folder.rglob("*.py") if re.search(r"Console\(", p.read_text())}
    assert own == {"console.py"}
    echoes = {p.name for p in folder.rglob("*.py") if re.search(r"\becho\(", p.read_text())}
    assert echoes == {"console.py"}
    # So does what writes JSON, or an answer might lack the number of its keys.
    writes = r"json\.dumps\(|(?<![.\w])write\("
    assert {p.name for p in folder.rglob("*.py") if re.search(writes, p.read_text())} == {
        "console.py"
    }


STEERING = "\x1b]0;PWN\x07\u009b31m\u202e\x1b]52;c;aGk=\x07"
SHOWN = r"\u001b]0;PWN\u0007\u009b31m\u202e\u001b]52;c;aGk=\u0007"
BELL = r"\u0007"


@pytest.mark.slow
def test_output_of_a_job_steers_no_terminal(jobs: FakeHost) -> None:
    """Titles, clipboards, colours and turned lines; at the end, and whenever it is shown again."""
    path = jobs.write_job("esc")
    words = f"import sys; sys.stderr.write({STEERING!r}); sys.exit('died')"
    job = path.read_text().replace(str(FAKES / "fake_job.py"), "-c", 1)
    path.write_text(job.replace('"-c"', json.dumps("-c") + ", " + json.dumps(words)))
    launched = jobs.advisor("launch", "esc", "two", "--split", "30/70", "--when-one-ends", "stop")
    assert launched.returncode
    launch_id = next(iter((jobs.folder / "home" / "launches").iterdir())).name
    for said in launched, jobs.advisor("launches", "show", launch_id):
        text = said.stdout + said.stderr
        # Tables leave the bell out.
        assert SHOWN.replace(BELL, "") in re.sub(r"\s", "", text).replace(BELL, "")
        assert not set(STEERING) & {"\x1b", "\x07", "\u009b", "\u202e"} & set(text)


def test_names_of_files_steer_no_terminal(advisor: Advisor, tmp_path: Path) -> None:
    """They are in warnings, errors and their JSON; a line of one is no other message."""
    name = "x\u202e\x9b2J\nadvisor: all is well.yaml"
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / name).write_text("command: [true]")
    for said in advisor("jobs"), advisor("recommend", name, "triad"):
        assert r"x\u202e\u009b2J\nadvisor: all is well.yaml" in said.err
        assert said.err.isascii()
        assert "\nadvisor: all is well" not in said.err


def test_a_warning_of_a_library_steers_no_terminal(jobs: FakeHost) -> None:
    """Commands have no log: what is told there goes to stderr as it is, but for this."""
    row = json.dumps(to_row(bundled_solo_points({"fft"})[0]))
    torn = jobs.folder / "x\u202e\x1b[2J\nadvisor: all is well.jsonl"
    torn.write_text(f"{row}\n{row[:9]}")
    done = jobs.advisor("data", "import", str(torn))
    assert (done.returncode, "cut off by a crash" in done.stderr) == (0, True)
    assert done.stderr.isascii()
    assert "\x1b" not in done.stderr
    assert "\nadvisor: all is well" not in done.stderr


def test_a_moment_that_has_not_come_is_refused(advisor: Advisor, tmp_path: Path) -> None:
    """It would be the newest for ever; weeks sort elsewhere as text."""
    point = next(p for p in bundled_solo_points() if p.job == "fft")
    for moment in ("9999-12-31T00:00:00Z", "2026-W05-6T00:00:00Z", "1999-12-31T00:00:00Z"):
        row = to_row(replace(point, started_at=moment))
        (tmp_path / "sent.jsonl").write_text(json.dumps(row) + "\n")
        said = advisor("data", "import", "sent.jsonl")
        assert said.code == 2
        assert moment in said.err


def test_a_table_of_many_columns_is_refused_at_once(advisor: Advisor, tmp_path: Path) -> None:
    (tmp_path / "wide.csv").write_text(",".join(map(str, range(200_000))) + "\n")
    began_s = time.process_time()
    said = advisor("data", "import", "wide.csv")
    assert (said.code, "200,000 columns" in said.err) == (2, True)
    assert time.process_time() - began_s < 5


def test_colours_are_those_of_styles(capsys: pytest.CaptureFixture[str]) -> None:
    console = plain_console(width=80)
    console._force_terminal = True  # pyright: ignore[reportPrivateUsage]
    console.print(plain_table([STEERING], [["\x1b[31m"]]))
    said = capsys.readouterr().out
    assert r"\u001b[31m" in said
    assert set(re.findall(r"\x1b.{0,3}", said)) <= {"\x1b[1m", "\x1b[0m"}


def test_no_log_steers_a_terminal() -> None:
    """Causes in it quote what jobs said; none of their lines passes for one of ours."""
    words = f"{STEERING}\nERROR all is lost"
    try:
        raise ValueError(STEERING)
    except ValueError:
        told = sys.exc_info()
    said = logging.LogRecord("it", logging.ERROR, "", 0, "failed: %s", (words,), told)
    first, *trace = PrintableFormatter().format(said).splitlines()
    assert (first, trace[-1]) == (rf"failed: {SHOWN}\nERROR all is lost", f"ValueError: {SHOWN}")
    line = JsonFormatter().format(said)
    record = json.loads(line)
    assert (line.isascii(), line.isprintable(), record["level"]) == (True, True, "error")
    assert record["message"] == f"failed: {words}"
    assert record["error"].endswith(f"ValueError: {STEERING}")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record["time"])


def test_no_log_has_a_formatter_of_its_own() -> None:
    """Service and agents have one; each other would have to be as careful."""
    sources = [p for folder in ("advisor", "api") for p in (ROOT / folder).rglob("*.py")]
    own = re.compile(r"basicConfig\((?!.*handlers)|logging\.Formatter\(|[ =]Formatter\(")
    assert not [p.name for p in sources if own.search(p.read_text())]
