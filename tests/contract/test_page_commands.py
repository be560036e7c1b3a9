"""Commands of the pages can be called: their options, files and scripts are there.

Those that need no GPU, cluster or network are run by test_wheel.py; `python
tests/fakes/page_blocks.py` lists which are not, and why.
"""

import itertools
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import typer
from command_line import Advisor, called
from page_blocks import ROOT, Block, blocks, commands, pages, why_not_run

from advisor.errors import DISTRIBUTION

RUN_BY = {
    "docs/client.md": "integration/test_api_docs.py",
    "docs/job-file.md": "unit/advisor/test_progress.py",
    "docs/python.md": "contract/test_wheel.py",
}
"""The test that runs the Python of a page."""


@pytest.mark.slow
@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_each_command_that_a_page_shows_can_be_called(page: Path) -> None:
    """A renamed option, extra, target or script would be shown to readers for ever."""
    for block in blocks(page):
        folder = ROOT
        for line, command in commands(block):
            if moved := re.match(r"cd (docs/[\w/]+)", command):
                folder = ROOT / moved[1]
            if "a script of that commit" in (why_not_run(command) or ""):
                continue
            for words in _parts(command):
                assert not [*_faults(words, folder)], f"{block.page}:{line}: {command}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "block",
    [
        block
        for page in pages()
        if page.parent in {ROOT, ROOT / "docs"}
        for block in blocks(page)
        if block.text.startswith("$ advisor ")
    ],
    ids=lambda block: f"{block.page}:{block.line}",
)
def test_an_answer_that_a_page_shows_is_the_one_that_is_given(
    block: Block, advisor: Advisor
) -> None:
    """Its figures would stand there for ever when a law is renewed; `...` is left out."""
    command, _, shown = block.text.partition("\n")
    printed = " ".join(advisor(*shlex.split(command)[2:]).out.split())
    for part in re.split(r"^ *\.\.\.$", shown, flags=re.MULTILINE):
        assert " ".join(part.split()) in printed


def _parts(command: str) -> Iterator[list[str]]:
    """The words of each command of a line, without variables in front and files behind."""
    words = shlex.shlex(command, posix=True, punctuation_chars="|&;")
    words.whitespace_split = True
    for between, part in itertools.groupby(words, re.compile("[|&;]+$").match):
        plain = itertools.takewhile(lambda word: word[0] not in "<>", part if not between else ())
        yield [*itertools.dropwhile(re.compile(r"[A-Z_]+=|(?:sudo|do|\$)$").match, plain)]


def _faults(plain: list[str], folder: Path) -> Iterator[str]:
    if not plain:
        return
    program, rest = Path(plain[0]).name, plain[1:]
    if program in {"advisor", DISTRIBUTION} and rest and re.match("[a-z]", rest[0]):
        command, options = called(rest)
        with suppress(SystemExit, typer.Exit):  # it was asked for help
            command.make_context("", [*options])
    elif program.startswith("python") and rest[:1] != ["-m"]:
        yield from _faults_of_script(rest, folder)
    elif program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        yield from (word for word in rest if "=" not in word and word not in targets)
    elif program == "pip":
        asked = re.findall(rf"(?:\.|{DISTRIBUTION})\[([\w,]+)\]", " ".join(rest))
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        names = ",".join(asked).split(",") if asked else []
        yield from (name for name in names if name not in project["optional-dependencies"])


def _faults_of_script(words: list[str], folder: Path) -> Iterator[str]:
    """Its file, and options that its text does not name."""
    if not words or not words[0].endswith(".py") or ("/" not in words[0] and folder == ROOT):
        return
    script = folder / words[0]
    if not script.is_file():
        yield f"there is no {words[0]}"
        return
    text = script.read_text()
    yield from (w for w in words if w.startswith("--") and f'"{w.split("=")[0]}"' not in text)


def test_python_and_json_of_the_pages_are_no_typos() -> None:
    """Python is run by the test that RUN_BY names; JSON is compared with answers by others."""
    found = [(page, block) for page in pages() for block in blocks(page)]
    for _, block in found:
        if block.language == "python":
            compile(block.text, f"{block.page}:{block.line}", "exec")
            assert Path(RUN_BY[block.page]).name in {p.name for p in (ROOT / "tests").rglob("*.py")}
        elif block.language == "json":
            json.loads(block.text)
    assert {block.page for _, block in found if block.language == "python"} == set(RUN_BY)
