"""Mistakes that people make at the command line: one line says what to do, never a traceback."""

import json
import logging
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Advisor, in_its_own
from host import FAKES, FakeHost

from advisor.core.wording import JsonFormatter, PrintableFormatter
from advisor.formats.rows import to_row
from advisor_cli.app import config
from advisor_cli.console import plain_console, plain_table, print_table
from advisor_data import open_store
from advisor_data.bundled import bundled_pair_points, bundled_solo_points


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("profile", "triad", "--gpu", "replay", "--units", "13"), 2, "ask for 12 or 14."),
        (("place", "--jobs", "nofile.txt", "--gpus", "2"), 2, "nofile.txt cannot be read"),
        (("recommend", "gemm", "triad", "--min-speed", "gemm=150%"), 2, "speed of 1.5 for gemm"),
        (("recommend", "gemm", "triad", "--min-speed", "half"), 2, "half has no number"),
        (("place", "gemm:four", "--gpus", "2"), 2, "write NAME, NAME:40 for forty"),
        (("recommend", "gemm", "triad", "--objective", "energy"), 2, "did you mean energy"),
        (("recommend", "gemm", "triad", "--min-gain", "3"), 2, "did you mean 3%?"),
        (("place", "gemm", "--gpus", "1", "--min-gain", "little"), 2, "write 0.03, or 3%"),
        (("profile", "triad", "--shares", "0.5,1"), 2, "did you mean 50,100?"),
        (("profile", "triad", "--shares", "0.5,20"), 2, "write percentages such as 10,50,100"),
        (("profile", "--name", "x", "--shares", "10,150", "--", "true"), 2, "at most 100"),
        (("profile", "--name", "x", "python", "a.py", "--rate", "5"), 2, "put -- before"),
        (("recommend", "gemm", "triad", "--max-p99", "50"), 2, "50 has no time with a unit"),
        (("launch", "triad*8"), 2, "a launch is of two to 7 jobs"),
        (("models", "promote", "./nofolder"), 9, "there is no such folder"),
        (("models", "promote", "."), 9, "there is no manifest.json in it"),
        # Scripts in the place of names, a command without its name, names joined, a folder.
        (("recommend", "a.py", "b.py"), 2, "advisor profile --name a -- python a.py "),
        (("recommend", "my/Net.py"), 2, "advisor profile --name NAME -- python my/Net.py "),
        (("recommend", "a.py"), 2, "2. this command again, with a for it"),
        (("profile", "python", "a.py"), 2, "advisor profile --name a -- python a.py."),
        (("profile", "--", "torchrun", "a.py", "b c"), 2, "--name a -- torchrun a.py 'b c'."),
        (("profile", "python", "a.py", "--lr", "3"), 2, "put -- before the command"),
        (("recommend", "fft+gemm"), 2, "write fft gemm"),
        (("recommend", "fft,gemm"), 2, "write fft gemm"),
        (("run", "nosuch/"), 2, "there is no nosuch/. name a folder of .yaml files."),
    ],
)
def test_message_and_exit_code(
    advisor: Advisor, words: tuple[str, ...], code: int, said: str
) -> None:
    done = advisor(*words)
    assert done.code == code, done.err
    assert said in done.err
    assert "Traceback" not in done.err
    assert "Errno" not in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("recommend", "vit-trian", "gemm"),
        ("recommend", "vit-trian"),
        ("place", "vit-trian", "--gpus", "1"),
        ("launch", "vit-trian", "gemm", "--dry-run"),
    ],
)
def test_unknown_job_has_the_same_next_steps_everywhere(
    advisor: Advisor, words: tuple[str, ...]
) -> None:
    """Measure it, ask again; and the name that was perhaps meant."""
    lines = advisor(*words).err.splitlines()
    assert lines[0].startswith("advisor: there is no job vit-trian")
    assert lines[1:] == [
        "  1. advisor profile --name vit-trian -- COMMAND   # 1 to 3 min of the GPU",
        "  2. this command again",
        "similar names: vit-train, vit-train-b2, vit-infer.",
    ]
    assert len(advisor("profile", "vit-trian").err.splitlines()) == 3
    assert "similar names: triad." in advisor("recommend", "TRIAD").err


def test_without_a_gpu_no_command_is_watched(
    advisor: Advisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was run for up to 20 s before anybody looked for the GPU."""
    monkeypatch.setattr("advisor_cli.measure.profile.find_progress", None)
    done = advisor("profile", "--name", "a", "--", "sleep", "60")
    assert (done.code, "looking for progress" in done.err) == (6, False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("recommend",), "Missing argument 'A [B ...]'. try advisor recommend --help."),
        (("recommend", "gemm", "triad", "--max-power", "x"), "Invalid value for '--max-power'"),
        (("models", "promote"), "Missing argument 'model'. try advisor models promote --help."),
        (("nothing",), "No such command 'nothing'"),
    ],
)
def test_wrong_words_are_json_where_json_is_wanted(
    advisor: Advisor, words: tuple[str, ...], said: str
) -> None:
    done = advisor(*words, "--json")
    assert done.code == 2
    error = json.loads(done.out)["error"]
    assert error["code"] == "bad-input"
    assert said in error["message"]
    assert "Usage: advisor" in advisor(*words).err


def test_replay_of_what_was_not_recorded(advisor: Advisor) -> None:
    replay = ("--gpu", "replay", "--json")
    done = advisor("colocate", "--pairs", "mobilenet-train-b2+triad", "--splits", "30/80", *replay)
    assert done.code == 2
    message = json.loads(done.out)["error"]["message"]
    assert "of mobilenet-train-b2 + triad were recorded 10/90, 20/80" in message
    done = advisor("colocate", "--pairs", "gemm+triad", "--splits", "50/50", *replay)
    assert "pairs were recorded, such as" in json.loads(done.out)["error"]["message"]


@pytest.mark.parametrize(
    ("command", "extra", "option"),
    [
        ("evaluate", "train", "--json"),
        ("recommend", "advise", "--help"),
    ],
)
def test_command_whose_libraries_are_missing(
    tmp_path: Path, command: str, extra: str, option: str
) -> None:
    """The library and the extra that brings it, also where help was asked for."""
    done = in_its_own(tmp_path, command, option, without=("numpy", "sklearn"))
    assert done.returncode == 2
    assert f"{command} needs numpy, which is not installed".encode() in done.stderr
    # From where this was installed: no index need have it.
    checkout = Path(__file__).parents[2]
    assert f"pip install -e '{checkout}[{extra}]'".encode() in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.slow
def test_terminal_that_cannot_show_all_characters(tmp_path: Path) -> None:
    done = in_its_own(tmp_path, *("profile", "triad", "--gpu", "replay"), PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert all(part in done.stdout for part in (b"the chart is left out", b"triad"))


def test_reader_that_has_seen_enough(tmp_path: Path) -> None:
    """`advisor jobs | head -1` ends as if by SIGPIPE, without a word."""
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(
        [sys.executable, "-m", "advisor_cli", "jobs", "--bundled"],
        env={**os.environ, "ADVISOR_HOME": str(tmp_path / "home")},
        stdout=theirs,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(theirs)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A good job, one with a pattern in double quotes, one of no program, one of odd data."""
    progress = "progress: {kind: counter, unit: step}\n"
    pattern = 'progress: {kind: output, unit: step, pattern: "step (\\d+)"}\n'
    texts = {
        "good": f"command: 'true'\n{progress}",
        "quoted": f"command: a\n{pattern}",
        "lost": f"command: nosuchprogram --fast\n{progress}",
        "odd": "command: touch started\ninput: {dtype: bf16, data: 'nonsense(1)'}\n",
    }
    (tmp_path / "jobs").mkdir()
    for name, text in texts.items():
        (tmp_path / f"jobs/{name}.yaml").write_text(text)
    monkeypatch.setenv("ADVISOR_JOBS", str(tmp_path / "jobs"))


@pytest.mark.usefixtures("faulty")
def test_one_faulty_file_hides_no_other_job(advisor: Advisor) -> None:
    done = advisor("jobs", "--json")
    assert done.code == 0
    assert {"good", "lost"} <= {row["job"] for row in json.loads(done.out)["jobs"]}
    assert r"quoted.yaml:2:55: not YAML" in done.err
    assert r"single quotes: 'step (\d+)'" in done.err
    assert advisor("recommend", "gemm", "nosuch").code == 2


@pytest.mark.usefixtures("faulty")
@pytest.mark.parametrize(
    ("job", "code", "said"),
    [
        ("lost", 5, "lost cannot be started: there is no program nosuchprogram"),
        ("odd", 2, "nonsense"),
    ],
)
def test_a_job_that_cannot_run_is_not_tried_at_every_share(
    advisor: Advisor, tmp_path: Path, job: str, code: int, said: str
) -> None:
    """Neither without its program nor with data that cannot be meant."""
    done = advisor("profile", job, "--shares", "50,100")
    assert done.code == code
    assert said in done.err
    assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "started").exists()


def test_an_export_of_nothing_says_where_points_are(advisor: Advisor) -> None:
    done = advisor("data", "export", "x.csv", "--kind", "pairs")
    assert done.code == 0
    assert "no points of kind pairs are stored here" in done.out
    assert "load_dataset" in done.out


@pytest.mark.slow
def test_a_sweep_that_makes_no_profile_says_so(host: FakeHost) -> None:
    host.write_job("one")
    done = host.advisor("profile", "one", "--shares", "20", "--window", "0.5")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == (
        "no profile yet: there is no point at 100 %; next: advisor profile one --shares 50,100"
    )
    done = host.advisor("profile", "one", "--shares", "50,100", "--window", "0.5")
    assert "no profile yet" not in done.stdout


@pytest.mark.parametrize("words", [("jobs", "--bundled"), ("models", "list"), ("doctor",)])
def test_tables_in_a_pipe_are_whole(
    advisor: Advisor, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """However narrow the terminal of anyone who called it, no cell is cut and no line padded."""
    monkeypatch.setenv("COLUMNS", "40")
    lines = advisor(*words).out.splitlines()
    assert len(lines) > 1
    assert all(line == line.rstrip() and "\u2026" not in line for line in lines)


def test_first_migration_says_that_it_did_something(advisor: Advisor) -> None:
    assert advisor("data", "migrate").out == (
        "tables were made or changed; the database's schema is current\n"
    )
    assert advisor("data", "migrate").out == "the database's schema is current already\n"


# Text that somebody else stored, in what commands print: it is text, whatever is in it.


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


def test_a_pipe_is_not_filled_with_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    """Behind sentences; a row stays a line, and names and numbers stand below each other."""
    rows = [["a-long-name", "5", "word " * 40, "do it"], ["b", "12", "short", ""]]
    print_table(plain_table(["job", "count", "found", "fix"], rows))
    assert capsys.readouterr().out.splitlines() == [
        "job          count  found  fix",
        f"a-long-name      5  {'word ' * 40}  do it",
        "b               12  short",
    ]


def test_settings_fit_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the headings, which are bold, and the path of their file."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    config()
    _, *lines, _ = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80


def test_a_table_breaks_no_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The widest column wraps first, and a part keeps its sign."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "48")
    monkeypatch.setenv("TERM", "xterm")
    cells = ["wav2vec2-infer-waiting", "96.4 %", "counter-mismatch noisy-rate"]
    print_table(plain_table(["job", "time saved", "flags"], [cells]))
    rows = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert rows[-2:] == ["wav2vec2-infer-waiting  96.4 %  counter-mismatch", f"{'':32}noisy-rate"]


def test_an_error_wraps_between_words(advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    lines = advisor("launch", "triad", "z", "--split", "30/70").err.splitlines()
    assert max(map(len, lines)) > 60
    assert all(len(line) <= 60 or line.startswith("  1. advisor") for line in lines), lines


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


def test_what_cannot_have_been_measured_is_refused(advisor: Advisor, tmp_path: Path) -> None:
    """A moment to come would be the newest for ever; weeks sort elsewhere as text."""
    point = next(p for p in bundled_solo_points() if p.job == "fft")
    pair = bundled_pair_points()[0]
    moments = ("9999-12-31T00:00:00Z", "2026-W05-6T00:00:00Z", "1999-12-31T00:00:00Z")
    for moment, row in (
        *((moment, replace(point, started_at=moment)) for moment in moments),
        ("window_s is 0", replace(point, window_s=0.0)),
        ("window_s is 1e+308", replace(pair, window_s=1e308)),
        ("8 jobs ran together", replace(pair, parts=pair.parts * 4)),
    ):
        row = to_row(row)
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
