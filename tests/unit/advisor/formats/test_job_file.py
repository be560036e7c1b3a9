"""Job files: what is read, and that every fault names its place."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from other_user import mallory_does, shared_folder

from advisor.core.job import InputData, Job, ProgressSettings
from advisor.errors import InputError
from advisor.formats.job_file import find_job, inline_job, load_job, sound_jobs, watched_job
from advisor.formats.yaml_fields import MAX_BYTES
from advisor.settings import LIMIT_VARIABLES, read_settings

Write = Callable[[str], Path]


def test_full_file(write: Write) -> None:
    path = write(r"""
        name: bert-train
        description: BERT
        command: python train.py --name "two words" --batch 32
        workdir: models
        env: {OMP_NUM_THREADS: 4, LAZY: on, EMPTY: ""}
        progress: {kind: output, unit: samples, pattern: 'step (\d+)', cumulative: false}
        warm_up_s: 2.5
        start_timeout_s: 600
        memory_mib: 9000
        offered_rate: 120.5
        max_p99_ms: 50
        input: {source: real, dtype: bf16, sparsity: 0.5, note: wikitext}
    """)
    assert load_job(path) == Job(
        name="bert-train",
        description="BERT",
        command=("python", "train.py", "--name", "two words", "--batch", "32"),
        workdir=path.parent / "models",
        env=(("OMP_NUM_THREADS", "4"), ("LAZY", "on"), ("EMPTY", "")),
        progress=ProgressSettings(
            kind="output", unit="samples", pattern=r"step (\d+)", cumulative=False
        ),
        warm_up_s=2.5,
        start_timeout_s=600,
        memory_mib=9000,
        offered_rate=120.5,
        max_p99_ms=50,
        input=InputData(source="real", dtype="bf16", sparsity=0.5, note="wikitext"),
    )


def test_a_server_counted_by_its_page(write: Write) -> None:
    """Which counter and histogram are part of what is run; other jobs keep their hash."""
    page = "url: http://127.0.0.1:8000/metrics, counter: a_total"
    plain = load_job(write(f"command: a\nprogress: {{kind: metrics, unit: tokens, {page}}}"))
    assert plain.progress.url == "http://127.0.0.1:8000/metrics"
    more = load_job(write(f"command: a\nprogress: {{kind: metrics, {page}, histogram: b_seconds}}"))
    assert more.progress.histogram == "b_seconds"
    assert plain.job_hash != more.job_hash
    assert Job(name="train", command=("sleep", "5")).job_hash == "446e2d122021eaa4"


OURS = ("GATE_FILE", "GPU", "LAUNCH", "PROGRESS_FILE", "RUNTIME_DIR", "HOME", "DATABASE_URL", "X")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("progress", "kind: metrics, counter: a", "kind metrics needs url and counter"),
        (
            "progress",
            "kind: metrics, url: 'http://127.0.0.1/'",
            "kind metrics needs url and counter",
        ),
        (
            "progress",
            "kind: metrics, counter: a, url: 'http://10.0.0.1/'",
            "no http:// address of this host",
        ),
        ("progress", "url: 'http://127.0.0.1/'", "means something for kind metrics only"),
        (
            "progress",
            "kind: metrics, counter: a, url: 'http://[::1]/', gate: true",
            "kind counter only",
        ),
        *(
            ("env", f"{variable}: 1", f"2:.*{variable}: a job may not set")
            for variable in (*LIMIT_VARIABLES, *(f"ADVISOR_{name}" for name in OURS))
        ),
    ],
)
def test_what_cannot_be_read_or_lifts_a_limit_is_refused(
    write: Write, key: str, value: str, said: str
) -> None:
    """Pages that are elsewhere; variables that set the limit, or by which processes are found."""
    with pytest.raises(InputError, match=said):
        load_job(write(f"command: a\n{key}: {{{value}}}"))


def test_least_file(write: Write) -> None:
    """A command is enough; the file names the job, and a key without a value is left out."""
    path = write("command: [sleep, 5, a b]\nworkdir:\n")
    assert load_job(path) == Job(name="train", command=("sleep", "5", "a b"))


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("progess: {unit: a}\ncommand: a", "1:1", "the nearest is progress"),
        ("command: a\nprogress:\n  kind: runs\n  pre_run: 2", "4:3", "the nearest is per_run"),
        ("command: a\nxyz: 1", "2:1", "keys: command, description"),
        ("schema: 99\ncommand: a", "1:9", "99 is of a newer advisor; this one reads files up to"),
        ("command: a\nenv: {A: 1}\ncommand: b", "3:1", "given twice"),
        ("command: a\nenv:\n  A: 1\n  A: 2", "4:3", "given twice"),
        ("name: x", "1:1", "command is missing"),
        ("command:", "1:1", "command is missing"),
        ("- a", "1:1", 'expected lines such as "key: value", got a list'),
        ("just text", "1:1", "got 'just text'"),
        ("[a]: b", "1:1", "key: expected text, got a list"),
        ("command: a: b", "1:11", "not YAML"),
        ("command: [a", "1:12", "not YAML"),
        ("command: a\n---\ncommand: b", "2:1", "not YAML"),
        ("command: 'python \"x'", "1:10", "No closing quotation"),
        ("command: ''", "1:10", "expected a program"),
        ("command: {a: b}", "1:10", "got a mapping"),
        ("command: [a, [b]]", "1:14", "expected text, got a list"),
        ("command: [a, ~]", "1:14", "expected text, got nothing"),
        ('command: [a, "\\0"]', "1:14", "NUL"),
        ('command: [a, "\\uD800"]', "1:14", "half characters"),
        ("command: a\nname: Bert", "2:7", "small letters"),
        ("command: a\nenv: [A]", "2:6", "key: value"),
        ("command: a\nenv: {A: }", "2:9", "expected text, got nothing"),
        ("command: a\nenv: {A=B: 1}", "2:12", "no variable"),
        ("command: a\nwarm_up_s: -1", "2:12", "of at least 0, got '-1'"),
        ("command: a\nwarm_up_s: .nan", "2:12", "a number"),
        ("command: a\nwarm_up_s: 5s", "2:12", "a number"),
        ("command: a\nmemory_mib: 0", "2:13", "a whole number above 0"),
        ("command: a\nmemory_mib: 10.5", "2:13", "a whole number above 0"),
        ("command: a\noffered_rate: 0", "2:15", "a number above 0"),
        ("command: a\nworkdir: ''", "2:10", "expected text"),
        ("command: a\ninput: {source: zeros}", "2:17", "real or random or synthetic"),
        ("command: a\ninput: {sparsity: 2}", "2:19", "at most 1"),
        ("command: a\nprogress: {kind: file}", "2:18", "counter or output or runs"),
        ("command: a\nprogress: {unit: ''}", "2:18", "expected text"),
        ("command: a\nprogress: {gate: 1}", "2:18", "expected true or false"),
        ("command: a\nprogress: {kind: runs, gate: true}", "2:30", "kind counter only"),
        ("command: a\nprogress: {pattern: x}", "2:21", "kind output only"),
        ("command: a\nprogress: {cumulative: no}", "2:24", "kind output only"),
        ("command: a\nprogress: {per_run: 2}", "2:21", "kind runs only"),
        ("command: a\nprogress: {kind: runs, per_run: 0}", "2:33", "above 0"),
        ("command: a\nprogress: {kind: output}", "2:11", "pattern: kind output needs one"),
        ("command: a\nprogress: {kind: output, pattern: '('}", "2:35", "not a regular expression"),
        ("command: a\nprogress: {kind: output, pattern: (a)(b)}", "2:35", "2 groups"),
    ],
)
def test_fault_names_its_place(write: Write, text: str, where: str, what: str) -> None:
    path = write(text)
    with pytest.raises(InputError) as error:
        load_job(path)
    assert str(error.value).startswith(f"{path}:{where}: ")
    assert what in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "is empty"),
        (b"# nothing", "is empty"),
        (b"command: a\nname: \xff", ":2: not UTF-8"),
        (b"command: \x01", "not YAML"),
        (b'command: "\\UFFFFFFFF"', "not YAML"),
        (b"[" * 5000, "not YAML"),
        (b"#" * (MAX_BYTES + 1), "larger than"),
    ],
)
def test_file_that_is_no_job(tmp_path: Path, data: bytes, what: str) -> None:
    path = tmp_path / "train.yaml"
    path.write_bytes(data)
    with pytest.raises(InputError, match=what):
        load_job(path)


@pytest.mark.parametrize("theirs", ["hers", "for all"])
def test_jobs_of_others_in_the_current_folder_are_refused(
    theirs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their commands would run as us; with ADVISOR_JOBS somebody has said that they may."""
    with shared_folder() as shared:
        if theirs == "hers":
            mallory_does("mkdir", "-m", "0755", shared / "jobs")
        else:
            (shared / "jobs").mkdir()
            (shared / "jobs").chmod(0o777)
        monkeypatch.chdir(shared)
        here = Path("jobs")
        with pytest.raises(InputError, match=f"export ADVISOR_JOBS={shared}/jobs"):
            find_job("train", here)
        jobs, (fault,) = sound_jobs(here)
        assert (jobs, "another user's" in str(fault)) == ([], True)
        assert sound_jobs(read_settings({"ADVISOR_JOBS": "jobs"}).jobs_dir) == ([], [])
        assert sound_jobs(shared / "nowhere") == ([], [])


def test_jobs_that_come_with_advisor_stand_behind_those_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever names a folder has said which jobs may be started, and gets no others."""
    monkeypatch.chdir(tmp_path)
    here, named = read_settings({}).jobs_dir, read_settings({"ADVISOR_JOBS": "jobs"}).jobs_dir
    assert "tensor_ops.py" in find_job("triad", here).command
    with pytest.raises(InputError, match="no job triad among the 0 job files"):
        find_job("triad", named)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/triad.yaml").write_text("command: a")
    for jobs_dir in (here, named):
        assert find_job("triad", jobs_dir).command == ("a",)
    assert [job.name for job in sound_jobs(here)[0]] == ["triad"]


def test_file_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "no.yaml", tmp_path):
        with pytest.raises(InputError, match=str(path)):
            load_job(path)


def test_file_with_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_bytes(b"\xef\xbb\xbfcommand: a")
    assert load_job(tmp_path / "train.yaml").command == ("a",)


def test_stem_that_cannot_be_a_name(tmp_path: Path) -> None:
    path = tmp_path / "My Job.yaml"
    path.write_text("command: a")
    with pytest.raises(InputError, match="add a name"):
        load_job(path)
    path.write_text("command: a\nname: mine")
    assert load_job(path).name == "mine"


@given(data=st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_bytes_raise_nothing_else(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "train.yaml"
    path.write_bytes(data)
    assert _has_a_command_or_is_refused(path)


_KEYS = ("name", "command", "env", "progress", "kind", "pattern", "memory_mib", "workdir", "input")
_scalars = st.text(max_size=12) | st.integers() | st.floats() | st.booleans() | st.none()
_values = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(_KEYS) | st.text(max_size=5), inner, max_size=4)
    ),
)


@given(fields=st.dictionaries(st.sampled_from(_KEYS), _values, min_size=1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.filterwarnings("ignore::FutureWarning")  # random patterns such as "[["
def test_random_fields_raise_nothing_else(tmp_path: Path, fields: dict[str, object]) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(json.dumps(fields))
    assert _has_a_command_or_is_refused(path)


def _has_a_command_or_is_refused(path: Path) -> bool:
    """Whether the job has a command of words, or the file is refused."""
    try:
        command = load_job(path).command
    except InputError:
        return True
    return set(map(type, command)) == {str}


def test_find_by_path_and_name(tmp_path: Path) -> None:
    """A name means a file of the folder; an ending or a slash means a path."""
    (tmp_path / "one.yaml").write_text("command: a")
    other = tmp_path / "sub"
    other.mkdir()
    (other / "two.yml").write_text("command: b")
    assert find_job("one", tmp_path).command == ("a",)
    assert find_job(str(other / "two.yml"), tmp_path).command == ("b",)


@pytest.mark.parametrize(("size", "mib"), [("9GB", 8584), ("9 GiB", 9216), ("9000", 9000)])
def test_memory_may_have_its_unit(tmp_path: Path, size: str, mib: int) -> None:
    """As options take it; what is no size is refused with its place."""
    (tmp_path / "a.yaml").write_text(f"command: a\nmemory_mib: {size}")
    assert load_job(tmp_path / "a.yaml").memory_mib == mib
    (tmp_path / "a.yaml").write_text("command: a\nmemory_mib: 9 apples")
    with pytest.raises(InputError, match=r"2:13.*whole number above 0"):
        load_job(tmp_path / "a.yaml")


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("\tcommand: a", "indent with spaces"),
        ("command: a: b", "put a text with a colon between quotes"),
        ("", "write what it describes, a key a line"),
    ],
)
def test_what_is_not_yaml_has_its_cure(tmp_path: Path, text: str, cure: str) -> None:
    """The words of the reader say what it found, not what to write."""
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(InputError) as raised:
        load_job(tmp_path / "a.yaml")
    assert raised.value.fix == cure


def test_unknown_name(tmp_path: Path) -> None:
    (tmp_path / "bert-train.yaml").write_text("command: a")
    with pytest.raises(InputError, match=r"1 job file of .*similar names: bert-train"):
        find_job("bert-trian", tmp_path)
    with pytest.raises(InputError, match="among the 0"):
        find_job("bert", tmp_path / "no-such-folder")


def test_name_differs_from_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("command: x\nname: b")
    jobs, (fault,) = sound_jobs(tmp_path)
    assert (jobs, "rename the file to b.yaml" in str(fault)) == ([], True)


def test_inline() -> None:
    progress = ProgressSettings(kind="runs", unit="sorts", per_run=3)
    job = inline_job("x", ["python", "a b.py"], progress)
    assert job == Job(name="x", command=("python", "a b.py"), progress=progress)


@pytest.mark.parametrize(
    ("name", "command", "progress", "what"),
    [
        ("X", ["a"], {}, "cannot name a job"),
        ("x", [], {}, "give it after --"),
        ("x", [""], {}, "give it after --"),
        ("x", ["a"], {"kind": "output"}, "pattern: kind output needs one"),
        ("x", ["a"], {"kind": "output", "pattern": "["}, "not a regular expression"),
        ("x", ["a"], {"pattern": "a"}, "kind output only"),
        ("x", ["a"], {"kind": "runs", "per_run": float("nan")}, "above 0"),
        ("x", ["a"], {"kind": "typo"}, "'typo' is not counter"),
    ],
)
def test_faulty_inline_job(
    name: str, command: list[str], progress: dict[str, Any], what: str
) -> None:
    """A command line is held to the rules of a file."""
    with pytest.raises(InputError, match=what):
        inline_job(name, command, ProgressSettings(**progress))


def seen_name(folder: Path, *command: str, jobs: Path | None = None) -> str:
    return watched_job(command, folder, ProgressSettings(), jobs or folder / "none").name


def test_a_process_is_known_by_its_command_and_script(tmp_path: Path) -> None:
    """Not by where it lies, nor by which Python; one more byte or word is another job."""
    a, b = tmp_path / "a", tmp_path / "b"
    for folder in (a, b):
        folder.mkdir()
        (folder / "Train Net.py").write_text("steps")
    name = seen_name(a, "python3", "-u", "Train Net.py", "--lr", "1")
    assert re.fullmatch("train-net-[0-9a-f]{8}", name)
    assert (
        seen_name(tmp_path, "/usr/bin/python3.11", "-u", f"{b}/Train Net.py", "--lr", "1") == name
    )
    assert seen_name(a, "python3", "-u", "Train Net.py", "--lr", "2") != name
    (b / "Train Net.py").write_text("steps.")
    assert seen_name(b, "python3", "-u", "Train Net.py", "--lr", "1") != name


@pytest.mark.parametrize(
    ("command", "stem"),
    [
        (("/venv/bin/python", "-m", "pkg.train", "--lr"), "pkg.train"),
        (("/venv/bin/python", "/venv/bin/vllm", "serve", "m"), "vllm"),
        (("/venv/bin/python", "/venv/bin/torchrun", "train.py"), "train"),
        (("./nbody", "-n", "9"), "nbody"),
        (("python", "-c", "~\n~"), "job"),
    ],
)
def test_a_process_is_named_after_what_it_runs(
    command: tuple[str, ...], stem: str, tmp_path: Path
) -> None:
    assert seen_name(tmp_path, *command)[:-9] == stem


def test_a_container_is_known_by_its_image_and_command() -> None:
    """By digest where that is given, and by nothing that lies on the host which is asked."""

    def name(image: str, *command: str) -> str:
        return watched_job(command, None, ProgressSettings(), image=image).name

    train = ("python3", "/app/train.py")
    first = name("a/train:1@sha256:0f", *train)
    assert re.fullmatch("train-[0-9a-f]{8}", first)
    assert name("mirror/train@sha256:0f", "/opt/bin/python", "/src/train.py") == first
    assert len({first, name("a/train:1@sha256:1f", *train), name("a/train:1", *train)}) == 3


def test_a_script_that_has_no_end_is_passed_over(tmp_path: Path) -> None:
    """Another user's pipe would hold up who names it."""
    os.mkfifo(tmp_path / "train.py")
    (tmp_path / "real.py").touch()
    (tmp_path / "link.py").symlink_to("real.py")
    names = [seen_name(tmp_path, "python", name) for name in ("train.py", "link.py", "none.py")]
    assert [name[:-9] for name in names] == ["train", "link", "none"]
    (tmp_path / "real.py").write_text("more")
    assert seen_name(tmp_path, "python", "link.py") != names[1]


def test_a_registered_job_lends_its_name(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "mine.yaml").write_text("command: python train.py\nworkdir: .\n")
    assert seen_name(tmp_path, "python3", "train.py", jobs=tmp_path) == "mine"
    assert seen_name(tmp_path, "python3", "train.py", "x", jobs=tmp_path) != "mine"
