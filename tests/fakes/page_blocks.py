"""What the pages show to be typed: their blocks of code, and the commands in these."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"^```(?P<language>\w+)\n(?P<fenced>.*?)^```$"
    r"|(?:\A|(?<=\n\n))(?P<indented>(?: {4}[^\n]*\n|\n(?= {4}))+)",
    re.MULTILINE | re.DOTALL,
)
_COMMAND = re.compile(
    r"(?:[A-Z_]+=\S+ )*(?:\.\S*/bin/)?"
    r"(?:\$|advisor|sm-advisor|python|pytest|pip|make|curl|sudo|kubectl|helm|docker|git|cd|export"
    r"|mkdir|sbatch|srun|squeue|scontrol|systemctl|echo|for|while|set|bash) "
)


@dataclass(frozen=True, slots=True)
class Block:
    """What a page shows to be typed or read.

    Attributes:
        language: Of a fenced block; "" of an indented one.
        before: The paragraph in front of it, or the end of the block there.
    """

    page: str
    line: int
    language: str
    text: str
    before: str


def pages() -> list[Path]:
    """All that is written for people, but for what is decided or has changed."""
    folders = ("docs", "deploy", "examples", "jobs", "data", "models")
    found = [
        *ROOT.glob("*.md"),
        *(page for name in folders for page in (ROOT / name).rglob("*.md")),
    ]
    return sorted(page for page in found if page.stem not in {"CHANGELOG", "decisions"})


def blocks(page: Path) -> list[Block]:
    """Fenced and indented blocks, in order."""
    text = page.read_text()
    return [
        Block(
            str(page.relative_to(ROOT)),
            text.count("\n", 0, found.start()) + 1,
            found["language"] or "",
            found["fenced"] or re.sub("^ {4}", "", found["indented"], flags=re.MULTILINE),
            text[: found.start()].rstrip().rpartition("\n\n")[2],
        )
        for found in _BLOCK.finditer(text)
    ]


def commands(block: Block) -> Iterator[tuple[int, str]]:
    """Line and text of each: behind a `$` where there is one, else all lines that begin as one."""
    if block.language not in {"", "sh", "bash", "console"}:
        return
    shown = block.text.startswith("$ ")
    lines = iter(enumerate(block.text.splitlines(), block.line))
    for number, line in lines:
        if (shown and not line.startswith("$ ")) or not _COMMAND.match(line):
            continue
        while line.endswith("\\") or _is_open(line):
            line = line.removesuffix("\\") + next(lines)[1]
        yield number, line.removeprefix("$ ")


def _is_open(line: str) -> bool:
    try:
        return not shlex.split(line, comments=True)
    except ValueError:
        return True


NOT_RUN = {
    r"# (?:\S+ )*at [0-9a-f]{8}$": "a script of that commit, which is not kept",
    r"docs/measurements/|python \S*\w+\.py|^git ": "prints figures: minutes, or a GPU",
    r"\b(?:kubectl|helm|docker|sbatch|squeue|systemctl|sudo)\b|--on (?:slurm|ray)": "a cluster",
    r"\bcurl\b": "a service: test_api_docs.py runs those of its pages",
    r"\bpip install\b": "a network",
    r"\b(?:make|pytest)\b": "the tests themselves",
    r"^advisor \w+ .*\b(?:A|B|ID|JOB|FOLDER|FILE\S*|4711)\b": "names of the reader's own",
    r"^advisor (?:check|profile|colocate|power (?:sensor|kernel|input)|launch|run)\b"
    r"(?!.* (?:--gpu replay|--dry-run|--predict))": "a GPU",
    r"^advisor (?:evaluate|train|retrain|next|power train)\b": "learns, for minutes",
    r"^advisor models (?:promote|rollback)": "a model that was learned: test_models_command.py",
    r"^advisor audit\b": "a cluster, or half an hour: test_audit_command.py",
    r"^advisor (?:power sensor .*--gpu-model|power input .*--units)": (
        "seconds, for what other tests show: test_bundled_power.py, test_power_predict.py"
    ),
    r"^advisor (?:serve|watch(?!.* --once))|advisor\.scrape": "runs until it is stopped",
    r"^advisor data (?:backup|restore|migrate)|_URL": "a database: test_state.py",
    r"^(?!(?:[A-Z_]+=\S+ )*(?:sm-)?advisor )": "no command of ours",
}
"""What is shown and not run by the test of the wheel, by a pattern of it: why."""


def why_not_run(command: str) -> str | None:
    """The first reason; None: it is run."""
    plain = (
        re.sub(r"\.\S*/bin/(?=advisor|python)", "", command) if "advisor " in command else command
    )
    return next((why for pattern, why in NOT_RUN.items() if re.search(pattern, plain)), None)


if __name__ == "__main__":
    for shown in (block for page in pages() for block in blocks(page)):
        for line, command in commands(shown):
            print(f"{shown.page}:{line}: {why_not_run(command) or 'run'}: {command[:90]}")
