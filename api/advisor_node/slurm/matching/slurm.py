"""Slurm's own commands, asked and told."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from advisor.errors import SourceError

SlurmCommand: TypeAlias = Callable[..., str]
"""Runs a command of Slurm; its words are the arguments, its output what comes back."""

_PATIENCE_S = 30.0


def ask(*command: str) -> str:
    """What a command of Slurm prints.

    Raises:
        SourceError: it is not there, failed, or took too long.
    """
    try:
        done = subprocess.run(
            command,
            # Else the tasks of a long array end in dots.
            env={**os.environ, "SLURM_BITSTR_LEN": "0", "LC_ALL": "C"},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError(f"{command[0]} could not be asked: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[:300]
        raise SourceError(f"{' '.join(command[:3])} failed: {said}")
    return done.stdout


def rows(text: str, of: str) -> list[Mapping[str, Any]]:
    """The objects in an answer in JSON.

    Raises:
        SourceError: it is no such answer.
    """
    try:
        answer = json.loads(text)[of]
    except (ValueError, KeyError, TypeError) as error:
        raise SourceError(
            f"Slurm's answer has no {of}",
            fix="look whether `squeue --json` works here: Debian has it in slurm-wlm-basic-plugins",
        ) from error
    return [row for row in answer if isinstance(row, dict)]


def number(value: Any) -> float | None:
    """A number, which later versions of Slurm wrap; None: not set, or without an end."""
    if isinstance(value, Mapping):
        wrapped = cast("Mapping[str, Any]", value)
        unset = not wrapped.get("set", True) or wrapped.get("infinite")
        value = None if unset else wrapped.get("number")
    return float(value) if isinstance(value, int | float) else None


def settings_of(text: str) -> dict[str, str]:
    """`Name = text` of each line of `scontrol show config`."""
    lines = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip() for name, mark, value in lines if mark}


def listed(value: Any) -> list[Any]:
    """What is in a list; nothing of what is none."""
    return list(cast("list[Any]", value)) if isinstance(value, list) else []
