"""Sites as they are: other counters on other nodes, other labels, cards that are shared already."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from advisor_audit.audit import Audit, Wanted, audit
from advisor_audit.page import headline
from advisor_audit.sources import SeriesFile
from advisor_models.one_window import bundled_head

STEP_S, BEGIN_S = 60.0, 1_700_000_000.0

PLAIN = {
    "DCGM_FI_DEV_POWER_USAGE": 180,
    "DCGM_FI_DEV_FB_USED": 6000,
    "DCGM_FI_DEV_FB_FREE": 75000,
}
BY_UTIL = PLAIN | {"DCGM_FI_DEV_GPU_UTIL": 20}
FULL = PLAIN | {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.2, "DCGM_FI_PROF_SM_ACTIVE": 0.12}

Rows = Iterable[dict[str, object]]


def rows(
    gpu: int,
    labels: Mapping[str, str],
    minutes: Iterable[int] = range(60),
    values: Mapping[str, float] = FULL,
) -> Rows:
    """Series of a small job on a GPU, in these minutes."""
    own = {"UUID": f"GPU-{gpu}", "modelName": "NVIDIA H100 80GB HBM3", "Hostname": "node1"}
    times_s = [BEGIN_S + STEP_S * (minute + 1) for minute in minutes]
    return [
        {"metric": {**own, **labels, "__name__": name}, "values": [[t, f"{v}"] for t in times_s]}
        for name, v in values.items()
    ]


def pod(name: str, team: str = "team") -> dict[str, str]:
    return {"namespace": team, "pod": f"{name}-7d9c5b6f4d-x2x7k", "container": "main"}


def audited(folder: Path, series: Iterable[Rows]) -> Audit:
    file, pages = folder / "series.jsonl", folder / "pages"
    file.write_text("".join(json.dumps(one) + "\n" for of_gpu in series for one in of_gpu))
    pages.mkdir()
    source = SeriesFile(file, step_s=STEP_S)
    return audit(source, pages, Wanted(head=bundled_head()), lambda _what, _done, _of: None)[0]


@pytest.mark.parametrize("values", [FULL, BY_UTIL], ids=["counters", "utilisation"])
def test_every_gpu_is_read_by_the_metrics_that_it_has(
    values: Mapping[str, float], tmp_path: Path
) -> None:
    """Three nodes without counters share as they would alone, beside one that has them or MIG."""
    plain = [rows(n, pod(f"web{n}"), values=BY_UTIL) for n in range(3)]
    found = audited(tmp_path, [*plain, rows(3, pod("train"), values=values)])
    assert found.shared.apart_hours == {}
    assert found.shared.cards.value <= 2
    assert "of 4 GPUs would have been enough" in headline(found)
    known = {job.job: job.fills for job in found.jobs}
    assert (known["web0"], known["train"]) == (None, False if values is FULL else None)


def test_next_to_nothing_is_not_said_of_what_was_not_read(tmp_path: Path) -> None:
    """Three of four GPUs have no power; the fourth has nobody to share with."""
    no_power = {name: value for name, value in FULL.items() if "POWER" not in name}
    dark = [rows(n, pod(f"web{n}"), values=no_power) for n in range(3)]
    found = audited(tmp_path, [*dark, rows(3, pod("train"))])
    assert found.shared.apart_hours == {"too little read": pytest.approx(3, abs=0.2)}
    said = headline(found)
    assert "next to nothing" not in said
    assert "too little read" in said
