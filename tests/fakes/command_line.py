"""The command line, called in this process or in one of its own, without a GPU."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from reading import answer_of

from advisor_cli import app, power
from advisor_cli.app import main


@dataclass(frozen=True, slots=True)
class Said:
    code: int
    out: str
    err: str


Advisor: TypeAlias = Callable[..., Said]
"""Runs `advisor` with these words."""


def answered(advisor: Advisor, *words: str) -> Any:
    """What the command answers as JSON when it ends well."""
    said = advisor(*words, "--json")
    assert said.code == 0, said.err
    return answer_of(said.out)


def refusal(said: Said) -> str:
    """What the command wrote about a mistake in its words."""
    assert said.code == 2, said
    return said.err


def called(words: Sequence[str]) -> tuple[Any, Sequence[str]]:
    """The command that words call, and what they hand it."""
    command, rest = app.load(words[0]), words[1:]
    while rest and rest[0] in getattr(command, "commands", {}):
        command = power.load(rest[0]) if words[0] == "power" else command.commands[rest[0]]
        rest = rest[1:]
    return command, rest


def in_this_process(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> Advisor:
    """Quick: libraries are loaded once. The store is in `home` of the folder."""
    monkeypatch.setenv("ADVISOR_HOME", str(folder / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.delenv("ADVISOR_DATABASE_URL", raising=False)
    monkeypatch.chdir(folder)

    def call(*words: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["advisor", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main()
        said = capsys.readouterr()
        return Said(int(stopped.value.code or 0), said.out, said.err)

    return call


def in_its_own(
    folder: Path, *words: str, without: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """What only a whole process shows: encodings, and libraries that are not installed."""
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({without!r})); "
        "from advisor_cli import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=folder,
        env={
            **{k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "ADVISOR_"))},
            "ADVISOR_HOME": str(folder / "home"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            **environment,
        },
        capture_output=True,
        timeout=250,
        check=False,
    )
