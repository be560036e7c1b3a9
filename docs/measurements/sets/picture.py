"""The picture of README.md: sets that were measured on one H200, beside a GPU for each job.

    python docs/measurements/sets/picture.py docs/sets.svg

Energy and GPU hours for the same work in percent of a GPU for each job, with those that become free
switched off; windows that come with the package.
"""

import argparse
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from report import rows_of
from rows import bundled_campaigns

from advisor_profiling.reports import SetResult

SETS = {
    "recommender-serve-10*3 bert-train-b2*2": "5 small jobs: three servers, two trainings",
    "bert-serve-30 notebook*2 vit-infer-b2*2 whisper-infer-b2": (
        "6 jobs: a server, two notebooks, three inferences"
    ),
    "bert-serve-10 embedding-serve-10 gemm": "2 servers beside a job that fills it, held to half",
    "bert-train resnet50-train": "2 trainings that fill it",
}
"""The jobs of a set, and what they are; three were asked for before they were measured."""

LIMITED = ("gemm",)

WIDTH, LEFT, ROW, TOP = 760, 340, 54, 34
FULL = WIDTH - LEFT - 60
"""Pixels; `FULL` is a bar of 100 %."""

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 } .jobs { font-size: 11px; fill: #59636e }
.energy { fill: #0a7d33 } .hours { fill: #5b7fb5 } .whole { stroke: #8c959f; stroke-dasharray: 3 3 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .jobs { fill: #9198a1 } .energy { fill: #3fb950 } .hours { fill: #79a6e8 }
}
""".strip()


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("file", type=Path)
    found = {name: _result(name) for name in SETS}
    parser.parse_args().file.write_text("\n".join(_svg(found)) + "\n")


def _result(name: str) -> SetResult:
    """The set on an H200 without limits, but for those of `LIMITED`."""
    wanted = sorted(_expanded(name.split()))
    for row in (
        row for campaign in bundled_campaigns(gpu_model="H200") for row in rows_of(campaign)
    ):
        parts = row.result.parts
        limited = {part.job for part in parts if part.share_percent < 100}
        if (
            row.result.mode in ("uncapped", "mps")
            and sorted(part.job for part in parts) == wanted
            and limited == {job for job in LIMITED if job in wanted}
        ):
            return row.result
    raise SystemExit(f"{name} was not measured")


def _expanded(words: Sequence[str]) -> Iterator[str]:
    for word in words:
        job, _, count = word.partition("*")
        yield from [job] * int(count or 1)


def _svg(found: dict[str, SetResult]) -> Iterator[str]:
    height = TOP + ROW * len(found) + 30
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="Energy and GPU hours of jobs on one GPU, for the same work">'
    )
    yield f"<style>{STYLE}</style>"
    yield '<text x="0" y="16">Jobs on one H200, the same work, measured</text>'
    yield f'<text x="{LEFT + FULL}" y="16" text-anchor="middle">a GPU each</text>'
    for number, (name, result) in enumerate(found.items()):
        yield from _row(TOP + ROW * number, name, result)
    bottom = TOP + ROW * len(found)
    x = LEFT + FULL
    yield f'<line class="whole" x1="{x}" x2="{x}" y1="22" y2="{bottom}"/>'
    for offset, (name, text) in enumerate((("energy", "energy"), ("hours", "GPU hours"))):
        at = LEFT + 90 * offset
        yield f'<rect class="{name}" x="{at}" y="{bottom + 6}" width="12" height="12"/>'
        yield f'<text x="{at + 18}" y="{bottom + 17}">{text}</text>'
    yield "</svg>"


def _row(y: int, name: str, result: SetResult) -> Iterator[str]:
    yield f'<text x="0" y="{y + 20}">{escape(SETS[name])}</text>'
    yield f'<text class="jobs" x="0" y="{y + 36}">{escape(name.replace(" ", ", "))}</text>'
    hours = 1 / sum(part.speed for part in result.parts)
    values = {"energy": 1 - result.saved_off, "hours": hours}
    for line, (kind, part) in enumerate(values.items()):
        top, width = y + 6 + 18 * line, FULL * part
        yield f'<rect class="{kind}" x="{LEFT}" y="{top}" width="{width:.0f}" height="16"/>'
        yield f'<text x="{LEFT + width + 6:.0f}" y="{top + 13}">{100 * part:.0f} %</text>'


if __name__ == "__main__":
    main()
