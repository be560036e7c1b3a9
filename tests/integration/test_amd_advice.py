"""`advisor recommend` and `advisor place` with made-up profiles of an AMD GPU: CU masks."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Advisor

from advisor_data.bundled import bundled_solo_points
from advisor_data.files import write_points

PAIR = ("gemm", "triad")
MI300X = "AMD Instinct MI300X"


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    """Points of two bundled jobs under the name of a GPU of which nothing else is known."""
    file = tmp_path / "solo.jsonl"
    write_points(
        file,
        [
            replace(p, gpu_model=MI300X, units_total=304, units_granted=None, mode="cu_mask")
            for p in bundled_solo_points()
            if p.job in PAIR and p.gpu_model == "NVIDIA H200"
        ],
    )
    return file


def overlap(a: dict[str, str], b: dict[str, str]) -> int:
    one, other = (int(found["ROC_GLOBAL_CU_MASK"], 16) for found in (a, b))
    return (one & other).bit_count()


def test_recommend_gives_masks(advisor: Advisor, profiles: Path) -> None:
    options = ("recommend", *PAIR, "--profiles", str(profiles), "--min-speed", "0.1")
    answer = json.loads(advisor(*options, "--all", "--json").out)
    assert answer["gpu_model"] == MI300X
    splits = [o for o in answer["candidates"] if o["sharing"] == "limited"]
    assert splits
    for option in splits:
        masks = [job["environment"] for job in option["jobs"] if job["share_percent"] < 100]
        assert all(set(mask) == {"HSA_CU_MASK", "ROC_GLOBAL_CU_MASK"} for mask in masks)
        beyond = sum(job["share_percent"] for job in option["jobs"]) > 100
        assert len(masks) < 2 or (overlap(*masks) > 0) == beyond
    text = advisor(*options, "--how").out
    assert "MPS" not in text
    assert answer["choice"]["sharing"] == "limited"
    mask = next(job["environment"] for job in answer["choice"]["jobs"] if job["environment"])
    assert f"export HSA_CU_MASK={mask['HSA_CU_MASK']}" in text
    assert "of 304 CUs (" in text.splitlines()[0]
    assert "ROCR_VISIBLE_DEVICES" in text


def test_a_set_has_masks_for_two_jobs_at_most(advisor: Advisor, profiles: Path) -> None:
    """Masks begin at one of two ends; there are no turns to choose, and nobody has tried faults."""
    options = ("recommend", "gemm*2", "triad", "--profiles", str(profiles), "--min-speed", "0.1")
    answer = json.loads(advisor(*options, "--json").out)
    assert {way["sharing"] for way in answer["candidates"]} == {"limited", "uncapped", "exclusive"}
    (way,) = (way for way in answer["candidates"] if way["sharing"] == "limited")
    masks = [job["environment"] for job in way["jobs"] if job["environment"]]
    assert 1 <= len(masks) <= 2
    assert all(set(mask) == {"HSA_CU_MASK", "ROC_GLOBAL_CU_MASK"} for mask in masks)
    assert any("no set was measured on AMD" in text for text in answer["warnings"])
    text = advisor(*options, "--isolate", "--how").out
    assert "nobody has tried" in " ".join(text.split())
    assert "MPS" not in text
