"""What a job file says of progress and results, and what is wrong with it."""

import math
import re
from collections.abc import Mapping
from typing import get_args

from advisor.core.job import ProgressKind, ProgressSettings, ResultsSettings
from advisor.errors import InputError
from advisor.formats import yaml_fields as read
from advisor.scrape.fetch import address_of

_ONLY_FOR = {
    **{"gate": "counter", "pattern": "output", "cumulative": "output", "per_run": "runs"},
    **dict.fromkeys(("url", "counter", "histogram"), "metrics"),
}

_PROGRESS: Mapping[str, read.FieldReader] = {
    "kind": read.one_of(*get_args(ProgressKind)),
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


def read_progress(field: read.YamlField) -> ProgressSettings:
    """How a job's progress is read.

    Raises:
        InputError: options that do not go together, with line and column.
    """
    progress = ProgressSettings(**read.record(field, _PROGRESS))
    if fault := progress_fault(progress):
        key, what = fault
        at = read.entries(field).get(key)
        raise at.fault(what) if at else field.fault(f"{key}: {what}")
    return progress


def progress_fault(progress: ProgressSettings) -> tuple[str, str] | None:
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


def read_results(field: read.YamlField) -> ResultsSettings:
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
