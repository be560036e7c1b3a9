"""The script that judges claims about the memory's power: what confirms and what refutes them."""

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.core.records import SoloPoint
from advisor_power.components.activity import COLUMNS, activity_of

POWER = Path(__file__).parents[4] / "docs/measurements/power"
MODEL = "Made-up GPU"
WATTS = np.array([110.0, 150.0, 500.0, 300.0, 100.0, 40.0, 15.0, 200.0])

JOBS = {
    "component-idle": (0.0, 0.0),
    "component-tensor-bf16": (0.0, 95.0),
    "component-hbm-copy": (85.0, 0.0),
    "triad": (90.0, 2.0),
    "matmul-bf16": (17.0, 90.0),
    **{f"job-{n}": (8.0 * n, 60.0 - 5.0 * n) for n in range(1, 8)},
}
"""Percent of the time in which memory and tensor cores of each job are busy on the whole GPU."""


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    """With few draws, which are all alike: watts here follow the rows exactly."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(POWER), *sys.path])
        found = importlib.import_module("component_claims")
        patch.setattr("memory_rises.DRAWS", 50)
        yield found


def by_bytes(point: SoloPoint) -> float:
    """45 W, and 70 W at all the bytes that there can be."""
    return 45.0 + 0.7 * (point.dram_active_percent or 0.0)


def by_work(point: SoloPoint) -> float:
    """What C1 says that memory is not."""
    return 45.0 + 0.7 * (point.tensor_active_percent or 0.0)


def points(memory_w: Callable[[SoloPoint], float | None], card: str = "GPU-1") -> list[SoloPoint]:
    """Every job at five shares, with a total that component weights explain exactly."""
    made: list[SoloPoint] = []
    for n, (job, (memory, tensor)) in enumerate(JOBS.items()):
        for share in (20.0, 40.0, 60.0, 80.0, 100.0):
            busy = dict.fromkeys(COLUMNS, 3.0 * (n % 4)) | {
                "dram_active_percent": memory * share / 100,
                "tensor_active_percent": tensor * share / 100,
                "sm_active_percent": share if job != "component-idle" else 0.0,
            }
            readings: dict[str, Any] = {**busy, "temperature_c": 35.0 + n}
            point = SoloPoint(
                job=job,
                gpu_model=MODEL,
                gpu_uuid=card,
                units_total=100,
                units_granted=int(share),
                share_percent=share,
                rate=share,
                sm_clock_mhz=1980.0,
                power_limit_w=1500.0,
                window_s=3.0,
                started_at=f"2026-11-23T00:{n:02d}:{share / 2:02.0f}Z",
                run=f"{card}-{job}",
                **readings,
            )
            found = activity_of(point)
            assert found is not None
            watts = float(found.terms(1980.0) @ WATTS)
            point = replace(point, power_w=watts)
            made.append(replace(point, memory_power_w=memory_w(point)))
    return made


def rows(script: Any, *sweeps: list[SoloPoint]) -> dict[str, tuple[str, str]]:
    """What was found and what follows, by claim."""
    lines = list(script.table([p for sweep in sweeps for p in sweep]))
    cells = [[cell.strip() for cell in line.split("|")] for line in lines[2:]]
    return {row[1]: (row[4], row[6]) for row in cells}


def verdicts(script: Any, *sweeps: list[SoloPoint]) -> list[tuple[str, str]]:
    """Of the six claims that are of all cards, in their order."""
    return list(rows(script, *sweeps).values())[:6]


def test_memory_that_follows_bytes_confirms_every_claim(script: Any) -> None:
    found = verdicts(script, points(by_bytes), points(by_bytes, "GPU-2"))
    assert [verdict for _, verdict in found] == ["confirmed"] * 6
    copies, work, rises, classes, cards, left_out = (text for text, _ in found)
    assert copies == "R2 component-hbm-copy 1.000, triad 1.000"
    assert work == "component-tensor-bf16 +0.0 W"
    assert "time +70.0 W (+70.0 to +70.0), of the busiest pipe's " in rises
    assert "matmul-bf16" in classes
    assert cards.startswith("12 of 12 within")
    assert left_out.startswith("0.0% (median 0.0%), 0.0 W over 12 jobs; 120 of 120")


def test_memory_that_follows_work_refutes_them(script: Any) -> None:
    """A table that says confirmed of anything is worth nothing."""
    copies, work, rises, classes, cards, left_out = verdicts(script, points(by_work))
    assert work == ("component-tensor-bf16 +66.5 W", "refuted")
    assert copies[1] == rises[1] == classes[1] == left_out[1] == "refuted"
    assert cards == ("no job on two cards", "open")


def test_what_another_card_draws_is_told_beside_it(script: Any) -> None:
    there = points(lambda p: 1.25 * by_bytes(p), "GPU-2")
    claim = "the memory's power, the same job on another card"
    found, verdict = rows(script, points(by_bytes), there)[claim]
    assert found.startswith("20.0% apart on average, 20.0% in the median, 20.0% at most")
    assert (found[-8:], verdict) == ("60 pairs", "open")
    assert rows(script, points(by_bytes))[claim] == ("no job was measured so", "open")


def test_a_sensor_that_does_not_repeat_is_told(script: Any) -> None:
    first = points(by_bytes)
    again = [
        replace(p, repeat=1, memory_power_w=0.9 * by_bytes(p), started_at=p.started_at + "9")
        for p in first
        if p.job == "triad"
    ]
    claim = "the memory's power, the same job on the same card again"
    found, _ = rows(script, [*first, *again])[claim]
    assert found.startswith("10.0% apart on average, 10.0% in the median, 10.0% at most")
    assert found.endswith("; 5 pairs")
    later = [replace(p, run="another day") for p in again]
    assert rows(script, [*first, *later])[claim] == ("no job was measured so", "open")


def test_cards_are_compared_at_the_same_work(script: Any) -> None:
    """A slower host leaves the GPU idle: that is no other card."""
    there = [
        replace(p, rate=p.rate * (0.5 if p.job == "job-7" else 0.98))
        for p in points(by_bytes, "GPU-2")
    ]
    _, _, _, _, cards, _ = verdicts(script, points(by_bytes), there)
    assert cards[0].startswith("11 of 11 within, 11 as estimated; ")
    assert cards[0].endswith("1 more pairs at unlike rates")


def test_memory_that_never_changes_refutes_that_it_rises(script: Any) -> None:
    """A stuck sensor has no correlation, which is none of 1."""
    found = verdicts(script, points(lambda _: 60.0))
    assert found[0] == ("R2 component-hbm-copy 0.000, triad 0.000", "refuted")
    assert found[2][0].startswith("Spearman 0.00")


@pytest.mark.parametrize("reading", [None, 0.0, 9999.0])
def test_without_a_reading_nothing_is_said(script: Any, reading: float | None) -> None:
    """Zero, and more than the whole GPU draws, are none."""
    found = verdicts(script, points(lambda _: reading))
    assert [verdict for _, verdict in found] == ["open"] * 6
    assert found[3][0].startswith("not measured; estimated ")


@pytest.mark.figures
@pytest.mark.parametrize(
    ("file", "card", "left_out", "again"),
    [
        ("memory-h100", "GPU-1d58b8db", "5.7% (median 4.0%), 6.2 W", "3.3% apart on average"),
        ("memory-h200", "GPU-0593d0f2", "12.3% (median 8.0%), 8.1 W", "8.9% apart on average"),
    ],
)
def test_figures_of_a_card_stay(
    script: Any, file: str, card: str, left_out: str, again: str
) -> None:
    """docs/component-power.md quotes them."""
    mine = [p for p in script.solo_points([POWER / f"memory/{file}.jsonl"]) if p.memory_power_w]
    found = rows(script, [p for p in mine if p.gpu_uuid.startswith(card)])
    assert found[f"the memory's power, job left out, on {card}"][0].startswith(left_out)
    assert found["the memory's power, the same job on the same card again"][0].startswith(again)
