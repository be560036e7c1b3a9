"""The program that computes at one number of SMs, and what it says (docs/check.md)."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from advisor.core.job import Job
from advisor.errors import InputError
from advisor.settings import workload_path
from advisor_profiling.counts.runs import Ended

PROCESS_MEMORY_MIB = 5000
"""What one process may need on the GPU."""

_LIBRARIES_S = 120


@dataclass(frozen=True, slots=True)
class Script:
    """The program, and the interpreter that has PyTorch."""

    python: str
    path: Path

    def job(self, *options: str) -> Job:
        """The program as a job."""
        command = (self.python, str(self.path), *options)
        return Job(name="library-check", command=command, memory_mib=PROCESS_MEMORY_MIB)


@dataclass(frozen=True, slots=True)
class ScriptResult:
    """What the program said at one count; `units` are the SMs that it saw."""

    units: int
    libraries: Mapping[str, str]
    operations: tuple[str, ...]
    wrong: tuple[str, ...]
    skipped: Mapping[str, str]


def library_script(python: str) -> Script:
    """The check of the libraries."""
    return Script(python, workload_path("library_check.py"))


def installed_libraries(script: Script, environment: Mapping[str, str]) -> dict[str, str]:
    """Versions of the libraries that the interpreter loads; no GPU is used.

    Raises:
        InputError: it cannot be started, or has no PyTorch.
    """
    said = ""
    try:
        done = subprocess.run(
            script.job("--libraries").command,
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=_LIBRARIES_S,
            check=False,
        )
        said = done.stderr.strip().rpartition("\n")[2]
        return _texts(_last_object(done.stdout))
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise InputError(
            f"{script.python} cannot say which libraries it has",
            why=said or str(error),
            fix="name an interpreter that has PyTorch: advisor check --python /path/to/python",
        ) from error


def read_answer(ended: Ended) -> ScriptResult | str:
    """What the program said, or why that is not to be believed."""
    if ended.fault:
        return ended.fault
    try:
        found = _last_object(ended.output)
        answer = ScriptResult(
            units=found["units"],
            libraries=_texts(found["libraries"]),
            operations=tuple(map(str, found["operations"])),
            wrong=tuple(map(str, found["wrong"])),
            skipped=_texts(found.get("skipped", {})),
        )
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        return f"it ended well but did not say what it computed ({error!r})"
    if answer.units != ended.units:
        return f"it saw {answer.units} SMs"
    return answer


def _last_object(text: str) -> dict[str, Any]:
    """The JSON object in the last line that begins one; libraries write warnings around it."""
    lines = [line for line in text.splitlines() if line.startswith("{")]
    if not lines:
        raise ValueError("no JSON object in its output")
    return cast("dict[str, Any]", json.loads(lines[-1]))


def _texts(found: Mapping[Any, Any]) -> dict[str, str]:
    return {str(name): str(text) for name, text in found.items()}
