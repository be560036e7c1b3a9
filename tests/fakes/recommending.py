"""`advisor recommend` as a person and a program call it."""

from typing import Any

from reading import answer_of
from typer.testing import CliRunner

from advisor.errors import AdvisorError
from advisor_cli.app import app


def recommend(*options: str) -> str:
    """What the command prints."""
    done = CliRunner().invoke(app, ["recommend", *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def as_json(*options: str) -> dict[str, Any]:
    """What the command answers to a program."""
    return answer_of(recommend(*options, "--json"))


def error(kind: type[AdvisorError], *options: str) -> str:
    """What the command says when it fails so."""
    done = CliRunner().invoke(app, ["recommend", *options])
    assert isinstance(done.exception, kind), done.output
    return str(done.exception)
