"""The CU-mask back-end against a libamdhip64 that counts the bits of its mask."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Advisor
from sleeper import sleeper

from advisor.core.gpu import Gpu, Share, Split, cus_for_percent
from advisor.core.job import Job
from advisor.errors import LimitNotProvenError
from advisor.launch.set_monitor import prove_set
from advisor.launch.spec import LaunchPart, LaunchSet
from advisor.runtime.backend import CuMaskBackend, Granted
from advisor.settings import read_settings
from advisor_data.bundled import bundled_solo_points
from advisor_data.files import write_points
from advisor_profiling.testbed import with_units

JOB = Job(name="job", command=("true",))

MI300X = Gpu(uuid="GPU-a", model="MI300X", vendor="amd", index=3, units_total=304)


def prove(gpu: Gpu, percent: float, hip: Path, **more: str) -> Granted:
    backend, share = CuMaskBackend(gpu), Share(percent)
    base = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(hip), **more}
    return backend.prove(share, {**base, **backend.environment(share)})


@pytest.mark.parametrize(("cus_total", "xcds"), [(304, 8), (228, 6), (110, 1)])
def test_share_is_read_back(hip: Path, cus_total: int, xcds: int) -> None:
    gpu = Gpu(uuid="GPU-a", model="MI", vendor="amd", units_total=cus_total)
    for percent in (10, 60, 100):
        assert prove(gpu, percent, hip) == Granted(cus_for_percent(percent, cus_total, xcds))


def test_process_sees_its_own_gpu_alone() -> None:
    """A GPU that no mask names would be without a limit."""
    assert CuMaskBackend(MI300X).environment(Share(10)) == {
        "ROCR_VISIBLE_DEVICES": "3",
        "HSA_CU_MASK": "0:0-31",
        "ROC_GLOBAL_CU_MASK": "0xffffffff",
    }


@pytest.mark.parametrize("split", [(30.0, 70.0), (20.0, 20.0)])
def test_launched_pair_has_masks_that_do_not_overlap(
    hip: Path, tmp_path: Path, split: tuple[float, float]
) -> None:
    pair = LaunchSet(split=Split(split), parts=(LaunchPart(job=JOB), LaunchPart(job=JOB)))
    base = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(hip)}
    proven = prove_set(pair, CuMaskBackend(MI300X), base, (tmp_path / "a", tmp_path / "b"))
    masks = [int(one.environment["ROC_GLOBAL_CU_MASK"], 16) for one in proven]
    assert masks[0] & masks[1] == 0
    assert [mask.bit_count() for mask in masks] == [one.granted.units for one in proven]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"FAKE_HIP_CUS": "304"}, "10 % is 32 CUs, but a process saw 304"),
        # HIP would still count the masked CUs while the queues run on all of them.
        ({"HSA_CU_MASK_SKIP_INIT": "1"}, "HSA_CU_MASK_SKIP_INIT is '1'"),
        ({"FAKE_HIP_ERROR": "100"}, "hipDeviceGetAttribute, error 100"),
        ({"LD_LIBRARY_PATH": "/nonexistent"}, "no-libamdhip64.*LD_LIBRARY_PATH"),
    ],
)
def test_mask_that_does_not_hold_is_refused(hip: Path, more: dict[str, str], message: str) -> None:
    with pytest.raises(LimitNotProvenError, match=message):
        prove(MI300X, 10, hip, **more)


@pytest.mark.parametrize("value", ["", "0"])
def test_variable_that_skips_nothing_is_passed_over(hip: Path, value: str) -> None:
    """ROCr leaves the mask on where it is empty or 0."""
    assert prove(MI300X, 10, hip, HSA_CU_MASK_SKIP_INIT=value).units == 32


def test_size_is_read_without_the_masks_of_the_caller(hip: Path) -> None:
    """A mask in advisor's own environment must not pass for a small GPU."""
    environment = {"LD_LIBRARY_PATH": str(hip), "ROC_GLOBAL_CU_MASK": "0xff"}
    gpu = Gpu(uuid="GPU-a", model="MI300X", vendor="amd")
    assert with_units(gpu, read_settings(environment)).units_total == 304


def test_only_a_job_that_is_seen_with_its_masks_passes() -> None:
    """One that drops or changes a mask is refused, and so is one that nobody can see."""
    backend = CuMaskBackend(MI300X)
    masks = backend.environment(Share(10))
    with sleeper({}) as ended:
        pass
    with sleeper(masks) as wrapper, sleeper({**masks, "MORE": "1"}) as worker:
        backend.check_clients(Share(10), lambda: [wrapper, ended, worker])
        for changed in ({"HOME": "/"}, backend.environment(Share(20))):
            with (
                sleeper(changed) as other,
                pytest.raises(LimitNotProvenError, match=rf"processes \[{other}\]"),
            ):
                backend.check_clients(Share(10), lambda other=other: [wrapper, other])
    with pytest.raises(LimitNotProvenError):
        backend.check_clients(Share(10), lambda: [])


# `advisor recommend` and `advisor place` with made-up profiles of an AMD GPU: CU masks.


PAIR = ("gemm", "triad")
CARD = "AMD Instinct MI300X"


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    """Points of two bundled jobs under the name of a GPU of which nothing else is known."""
    file = tmp_path / "solo.jsonl"
    write_points(
        file,
        [
            replace(p, gpu_model=CARD, units_total=304, units_granted=None, mode="cu_mask")
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
    assert answer["gpu_model"] == CARD
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
    """Masks begin at one of two ends; there are no turns to choose, and faults were not tested."""
    options = ("recommend", "gemm*2", "triad", "--profiles", str(profiles), "--min-speed", "0.1")
    answer = json.loads(advisor(*options, "--json").out)
    assert {way["sharing"] for way in answer["candidates"]} == {"limited", "uncapped", "exclusive"}
    (way,) = (way for way in answer["candidates"] if way["sharing"] == "limited")
    masks = [job["environment"] for job in way["jobs"] if job["environment"]]
    assert 1 <= len(masks) <= 2
    assert all(set(mask) == {"HSA_CU_MASK", "ROC_GLOBAL_CU_MASK"} for mask in masks)
    assert any("no set was measured on AMD" in text for text in answer["warnings"])
    text = advisor(*options, "--isolate", "--how", "--why").out
    assert "not tested on AMD" in " ".join(text.split())
    assert "MPS" not in text
