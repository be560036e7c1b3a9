"""Job files: YAML in, `Job` out, every fault with its line.

    name: bert-train
    command: python train.py --batch 32       # or a list of arguments; no shell either way
    workdir: ../models                        # relative to the file's own folder
    env: {OMP_NUM_THREADS: 4}
    progress: {kind: counter, unit: samples, gate: true}
    warm_up_s: 5
    memory_mib: 9000
    input: {source: random, dtype: bf16}

Only `command` is required. `advisor.core.job` has the meaning and the default of every field.
"""

import dataclasses
import hashlib
import math
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import get_args

import yaml

from advisor.core.gpu import MOST_GPUS, parse_memory_mib
from advisor.core.job import (
    InputData,
    InputSource,
    Job,
    ProgressKind,
    ProgressSettings,
    ResultsSettings,
)
from advisor.core.wording import NAME, count_of, unknown_job
from advisor.errors import InputError
from advisor.files import others_write_to, read_plain
from advisor.formats import yaml_fields as read
from advisor.scrape.fetch import address_of
from advisor.settings import LIMIT_VARIABLES, OUR_VARIABLES, job_folders

_ONLY_FOR = {
    **{"gate": "counter", "pattern": "output", "cumulative": "output", "per_run": "runs"},
    **dict.fromkeys(("url", "counter", "histogram"), "metrics"),
}

_PROGRESS: Mapping[str, read.FieldReader] = {
    "kind": read.choice_of(*get_args(ProgressKind)),
    "unit": read.word,
    "pattern": read.word,
    "cumulative": read.flag,
    "per_run": read.number(0, above=True),
    "gate": read.flag,
    "url": read.word,
    "counter": read.word,
    "histogram": read.word,
}

_RESULTS: Mapping[str, read.FieldReader] = {
    "pattern": read.word,
    "tolerance": read.number(0, 1, above=True),
}


def _read_progress(field: read.YamlField) -> ProgressSettings:
    """How a job's progress is read.

    Raises:
        InputError: options that do not go together, with line and column.
    """
    progress = ProgressSettings(**read.record(field, _PROGRESS))
    if fault := _progress_fault(progress):
        key, what = fault
        at = read.entries(field).get(key)
        raise at.fault(what) if at else field.fault(f"{key}: {what}")
    return progress


def _progress_fault(progress: ProgressSettings) -> tuple[str, str] | None:
    """The option at fault and what is wrong with it."""
    default = ProgressSettings()
    if progress.kind not in get_args(ProgressKind):
        return "kind", f"{progress.kind!r} is not {' or '.join(get_args(ProgressKind))}"
    for key, kind in _ONLY_FOR.items():
        if progress.kind != kind and getattr(progress, key) != getattr(default, key):
            return key, f"means something for kind {kind} only, and this one is {progress.kind}"
    if not 0 < progress.per_run < math.inf:
        return "per_run", f"{progress.per_run} is not a number above 0"
    if progress.kind == "output" and not progress.pattern:
        return "pattern", "kind output needs one, such as 'step (\\d+)'"
    if progress.kind == "metrics" and not (progress.url and progress.counter):
        missing = "counter" if progress.url else "url"
        return missing, "kind metrics needs url and counter, in the job file (docs/job-file.md)"
    try:
        address_of(progress.url or "http://localhost")
    except InputError as error:
        return "url", str(error)
    return _pattern_fault(progress.pattern) if progress.pattern else None


def _read_results(field: read.YamlField) -> ResultsSettings:
    """How a job's results are found.

    Raises:
        InputError: a pattern without one group, with line and column.
    """
    results = ResultsSettings(**read.record(field, _RESULTS))
    fault = _pattern_fault(results.pattern) if results.pattern else None
    if results.pattern and not fault and re.compile(results.pattern).groups != 1:
        fault = "pattern", f"{results.pattern!r} needs one group around the value"
    if fault:
        raise read.entries(field)["pattern"].fault(fault[1])
    return results


def _pattern_fault(pattern: str) -> tuple[str, str] | None:
    try:
        groups = re.compile(pattern).groups
    except (re.error, OverflowError, RecursionError) as error:
        return "pattern", f"{pattern!r} is not a regular expression: {error}"
    return ("pattern", f"{pattern!r} has {groups} groups, at most one") if groups > 1 else None


_NAME_RULE = "small letters, digits, '.', '_' and '-', the first a letter or digit, at most 100"


def load_job(path: Path) -> Job:
    """The job that a file describes; without `name` it is called as the file.

    Raises:
        InputError: the file cannot be read or describes no job; the message names line and column.
    """
    root = read.load(path)
    fields = read.whole_record(root, _JOB, required=("command",))
    if not NAME.fullmatch(fields.setdefault("name", path.stem)):
        raise root.fault(f"{path.stem!r} cannot name a job", fix=f"add a name: {_NAME_RULE}")
    return Job(**fields)


def find_job(name_or_path: str, jobs_dir: Path, *, again: bool = False) -> Job:
    """The job of a file, of a name in `jobs_dir`, or of a name that comes with advisor.

    A caller that needs more than a measurement asks `again` after it.

    Raises:
        InputError: there is no such job, or its file is faulty.
    """
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        return load_job(Path(name_or_path))
    names_by_folder = {folder: _names(folder) for folder in job_folders(jobs_dir)}
    for folder, names in names_by_folder.items():
        if name_or_path in names:
            return _load_named(folder, name_or_path)
    names = names_by_folder[jobs_dir]
    raise unknown_job(
        name_or_path,
        {*chain(*names_by_folder.values())},
        among=f" among the {count_of(len(names), 'job file')} of {jobs_dir}",
        again=again,
    )


def sound_jobs(jobs_dir: Path) -> tuple[list[Job], list[InputError]]:
    """The jobs of a folder, by name, and what is wrong with the other files of it, or with it."""
    jobs, faults = list[Job](), list[InputError]()
    try:
        names = _names(jobs_dir)
    except InputError as fault:
        return [], [fault]
    for name in names:
        try:
            jobs.append(_load_named(jobs_dir, name))
        except InputError as fault:
            faults.append(fault)
    return jobs, faults


def inline_job(name: str, command: Sequence[str], progress: ProgressSettings) -> Job:
    """A job given on the command line.

    Raises:
        InputError: the name, the command or the way of progress cannot be used.
    """
    if not NAME.fullmatch(name):
        raise InputError(f"{name!r} cannot name a job", fix=f"use {_NAME_RULE}")
    if not command or not command[0]:
        raise InputError(f"job {name} has no command", fix="give it after --")
    if fault := _progress_fault(progress):
        raise InputError(f"job {name}: {fault[0]}: {fault[1]}")
    return Job(name=name, command=tuple(command), progress=progress)


_SCRIPTS = (".py", ".sh")

AUTO = "auto"
"""In the place of a name: the job is named after what it runs, by `watched_job`."""


def watched_job(
    command: Sequence[str],
    workdir: Path | None,
    progress: ProgressSettings,
    jobs_dir: Path | None = None,
    image: str = "",
) -> Job:
    """The job of an unnamed process: the one of the folder with the same mark.

    The mark is a hash of the words and of the content of the script, or of the program where it is
    none of Python; of a container that of its image, by digest where that is given. The path up to
    it, folder, environment and pid make no difference, so that the same script is the same job
    wherever it lies.
    """
    place, mark = _mark(command, workdir, image)
    for job in sound_jobs(jobs_dir)[0] if jobs_dir else ():
        if _mark(job.command, job.workdir)[1] == mark:
            return job
    program = re.sub(r"\.(py|sh)$", "", Path(command[place]).name.lower())
    stem = re.sub(r"[^a-z0-9._-]", "-", program[:40]).strip("-_.") or "job"
    return Job(
        name=f"{stem}-{mark[:8]}", command=tuple(command), workdir=workdir, progress=progress
    )


def _mark(command: Sequence[str], workdir: Path | None, image: str = "") -> tuple[int, str]:
    """Place of the script, module or program in a command, and the hash that tells jobs apart."""
    scripts = [n for n, word in enumerate(command) if word.endswith(_SCRIPTS)]
    programs = [n for n, w in enumerate(command) if not w.startswith("-") and not _is_python(w)]
    place = next(iter((*scripts, *programs)), 0)
    parts = [Path(word).name for word in command[: place + 1]]
    if _is_python(command[0]):
        parts[0] = "python"
    parts += command[place + 1 :]
    if image:
        parts.append(image.rpartition("@")[2])
    elif scripts or place == 0:
        # Another user may have put there what is no file, or has no end.
        real = os.path.realpath((workdir or Path()) / command[place])
        if (content := read_plain(Path(real), 2**26)) is not None:
            parts.append(hashlib.sha256(content).hexdigest())
    return place, hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()


def _is_python(word: str) -> bool:
    return Path(word).name.startswith("python")


def save_job(job: Job, path: Path) -> None:
    """Write a job that was given on the command line, to be run in its folder, or where we stand.

    Raises:
        InputError: it cannot be written.
    """
    fields = {
        "command": [*job.command],
        "workdir": str(job.workdir or Path.cwd()),
        "progress": {
            key: value
            for key, value in dataclasses.asdict(job.progress).items()
            if value != getattr(ProgressSettings(), key)
        },
        **({"gpus": job.gpus} if job.gpus > 1 else {}),
    }
    with InputError.instead_of(
        OSError,
        f"{path} cannot be written",
        fix="go to a folder that may be written, or name one: export ADVISOR_JOBS=FOLDER",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(read.with_schema(yaml.safe_dump(fields, sort_keys=False)), encoding="utf-8")


def _names(jobs_dir: Path) -> list[str]:
    # A relative one was not configured: it is whatever the current folder has.
    if not jobs_dir.is_absolute() and others_write_to(jobs_dir):
        raise InputError(
            f"the jobs in {jobs_dir.absolute()} may be another user's",
            why="the folder belongs to another user, or all may write to it, and the commands in "
            "its files would run as you",
            fix=f"if you trust them: export ADVISOR_JOBS={jobs_dir.absolute()}",
        )
    return sorted(file.stem for file in jobs_dir.glob("*.yaml"))


def _load_named(jobs_dir: Path, name: str) -> Job:
    path = jobs_dir / f"{name}.yaml"
    job = load_job(path)
    if job.name != name:
        raise InputError(
            f"{path} names its job {job.name!r}",
            why="in a folder of jobs a job is called as its file",
            fix=f"rename the file to {job.name}.yaml, or drop the name from it",
        )
    return job


def _name(field: read.YamlField) -> str:
    name = read.text(field)
    if not NAME.fullmatch(name):
        raise field.expected(_NAME_RULE)
    return name


def _command(field: read.YamlField) -> tuple[str, ...]:
    if field.is_list:
        command = read.texts(field)
    else:
        try:
            command = tuple(shlex.split(read.text(field)))
        except ValueError as error:
            raise field.fault(f"{error} in the command") from error
    if not command or not command[0]:
        raise field.expected("a program and its arguments")
    return command


def _memory_mib(field: read.YamlField) -> int:
    """MiB, or a size with its unit."""
    try:
        return read.count(field)
    except InputError as error:
        if not re.fullmatch(r"[0-9.]+ ?[A-Za-z]+", text := read.text(field)):
            raise
        with InputError.instead_of(InputError, str(error)):
            return math.ceil(parse_memory_mib(text))


def _gpus(field: read.YamlField) -> int:
    if (number := read.count(field)) > MOST_GPUS:
        raise field.expected(f"1 to {MOST_GPUS}, the most of one job that were measured")
    return number


def _env(field: read.YamlField) -> tuple[tuple[str, str], ...]:
    values = read.entries(field)
    for name, value in values.items():
        if name in LIMIT_VARIABLES:
            raise value.fault(
                "a job may not set this variable: it sets the GPU, a limit or a priority",
                fix="drop it; choose the GPU with --gpu, the share with --shares or --split",
            )
        if name.startswith(OUR_VARIABLES):
            raise value.fault(
                f"a job may not set this variable: by those that begin with {OUR_VARIABLES} its "
                "processes are found, counted and ended",
                fix="drop it, or give it a name of your own",
            )
        if not name or "=" in name:
            raise value.fault("no variable can have this name")
    return tuple((name, read.text(value)) for name, value in values.items())


_INPUT: Mapping[str, read.FieldReader] = {
    "source": read.choice_of(*get_args(InputSource)),
    "dtype": read.word,
    "sparsity": read.number(0, 1),
    "data": read.text,
    "note": read.text,
}

_JOB: Mapping[str, read.FieldReader] = {
    "name": _name,
    "description": read.text,
    "command": _command,
    "workdir": lambda field: (field.path.parent / read.word(field)).absolute(),
    "env": _env,
    "progress": _read_progress,
    "results": _read_results,
    "warm_up_s": read.number(0),
    "start_timeout_s": read.number(0, above=True),
    "memory_mib": _memory_mib,
    "offered_rate": read.number(0, above=True),
    "max_p99_ms": read.number(0, above=True),
    "host_memory_mib": read.count,
    "max_tasks": read.count,
    "restartable": read.flag,
    "gpus": _gpus,
    "kernels_per_unit": read.number(0, above=True),
    "input": lambda field: InputData(**read.record(field, _INPUT)),
}
