"""How all commands print lines."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import typer

from advisor.core.wording import printable
from advisor.formats.wire import as_answer, write
from advisor.settings import SUITE


def say(text: object = "", *, err: bool = False) -> None:
    """Print a line or several; what a text of others might tell the terminal is shown instead.

    Args:
        text: What to print.
        err: Print it on stderr.
    """
    typer.echo(printable(str(text)), err=err)


def as_json_text(answer: Any) -> str:
    """What a command answers with `--json`: an object.

    Raises:
        WireError: a number that JSON has no word for.
    """
    return as_answer(write(answer).encode()).decode()


def with_places(text: str) -> str:
    """A text with the places of the pages that it names, and of the package that pip can install.

    Both came with this installation: no index need have them.
    """
    text = re.sub(r"(?<![\w/.])docs/[\w-]+\.md", lambda page: f"{SUITE / page[0]}", text)
    return re.sub(r"'sm-advisor(\[\w+\])'", lambda extra: _package(extra[1]), text)


def _package(extra: str) -> str:
    """With an extra, as pip takes it: the checkout or file that this was installed from."""
    from importlib.metadata import PackageNotFoundError, distribution  # 20 ms of every start

    try:
        told = distribution("sm-advisor").read_text("direct_url.json")
    except PackageNotFoundError:
        told = None
    source: dict[str, Any] = json.loads(told or "{}")
    url: str = source.get("url", "")
    path = Path(unquote(urlsplit(url).path))
    if not path.is_absolute() or not path.exists():
        return f"'sm-advisor{extra}'"
    editable = "-e " if source.get("dir_info", {}).get("editable") else ""
    return f"{editable}'{path}{extra}'"
