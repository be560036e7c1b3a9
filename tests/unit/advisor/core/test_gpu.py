"""The arithmetic between percent and SMs."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core import gpu as cu_mask
from advisor.core.gpu import (
    PERCENTAGE,
    SM_FLOOR,
    Share,
    Split,
    Vendor,
    grantable,
    percent_for_units,
    quantum,
    share_environment,
    share_for_units,
    split_environments,
    units_for_percent,
    units_for_share,
    vendor_of,
)
from advisor.errors import InputError, LimitNotProvenError

TOTALS = range(80, 201)


@pytest.mark.parametrize(
    ("percent", "units"),
    [
        *zip(range(10, 101, 10), (12, 26, 38, 52, 66, 78, 92, 104, 118, 132), strict=True),
        *((1, 8), (2, 8), (5, 8), (9, 10), (12.5, 16), (33.3, 42), (50.5, 66), (91, 120)),
        (99, 130),
    ],
)
def test_h200_grants_what_was_read_back(percent: float, units: int) -> None:
    assert units_for_percent(percent, 132) == units


@pytest.mark.parametrize(("percent", "units"), [(25, 46), (50, 94), (75, 140)])
def test_rtx_pro_6000_grants_what_was_read_back(percent: float, units: int) -> None:
    assert units_for_percent(percent, 188) == units


@given(st.sampled_from(TOTALS), st.floats(0, 100, exclude_min=True))
def test_grant_is_possible_and_never_more_than_asked(total: int, percent: float) -> None:
    units = units_for_percent(percent, total)
    assert SM_FLOOR <= units <= total
    assert units % 2 == 0 or units == total
    assert units == SM_FLOOR or units <= percent * total / 100 + 1e-6


@given(st.sampled_from(TOTALS), st.floats(0.1, 100), st.floats(0.1, 100))
def test_more_percent_is_never_fewer_units(total: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert units_for_percent(low, total) <= units_for_percent(high, total)


@pytest.mark.parametrize("percent", [0, -1, 100.0001, 101, math.nan, math.inf, -math.inf])
def test_percent_that_means_no_limit_is_refused(percent: float) -> None:
    with pytest.raises(InputError) as refused:
        Share(percent)
    assert str(refused.value) == (
        f"a share of {percent} % is not possible. the driver takes 0, negative numbers and "
        "numbers above 100 as no limit at all. give a percentage above 0 and at most 100."
    )
    with pytest.raises(InputError, match="not possible"):
        units_for_percent(percent, 132)


@pytest.mark.parametrize(
    ("units", "near"),
    [(9, "8 or 10"), (1, "8"), (0, "8"), (-4, "8"), (131, "130 or 132"), (134, "132")],
)
def test_count_that_cannot_be_granted_is_refused(units: int, near: str) -> None:
    with pytest.raises(InputError) as refused:
        percent_for_units(units, 132)
    assert str(refused.value) == (
        f"{units} of 132 SMs cannot be granted. "
        f"MPS grants even counts from 8 to 132 SMs. ask for {near}."
    )


@pytest.mark.parametrize("total", [2, 4, 6, 8])
def test_a_gpu_of_no_more_than_the_floor_is_granted_whole(total: int) -> None:
    """A slice of a GPU may have so few; a grant is never more than there is."""
    assert {units_for_percent(percent, total) for percent in (1, 50, 100)} == {total}


@given(st.sampled_from(TOTALS), st.data())
def test_the_percentage_of_a_count_is_the_smallest(total: int, data: st.DataObject) -> None:
    units = 2 * data.draw(st.integers(SM_FLOOR // 2 + 1, total // 2))
    percent = percent_for_units(units, total)
    assert percent == 1 or units_for_percent(percent - 1, total) < units


def test_share_prints_as_the_driver_reads_it() -> None:
    written = [str(Share(percent)) for percent in (10, 12.5, 33.3, 100.0)]
    assert written == ["10", "12.5", "33.3", "100"]


GPUS: list[tuple[int, Vendor]] = [
    (132, "nvidia"), (108, "nvidia"), (304, "amd"), (228, "amd"), (110, "amd"), (38, "amd"),
]  # fmt: skip


gpus = st.sampled_from(GPUS)


amd_totals = st.sampled_from([total for total, vendor in GPUS if vendor == "amd"])


each_gpu = pytest.mark.parametrize(("total", "vendor"), GPUS)


def bits(environment: dict[str, str]) -> int:
    return int(environment["ROC_GLOBAL_CU_MASK"], 16)


@pytest.mark.parametrize(
    ("gpu_model", "vendor"),
    [
        ("NVIDIA H200", "nvidia"),
        ("NVIDIA H100 80GB HBM3", "nvidia"),
        ("Tesla V100-SXM2-16GB", "nvidia"),
        ("AMD Instinct MI300X", "amd"),
        ("MI300X", "amd"),
        ("Instinct MI210", "amd"),
        ("AMD GPU", "amd"),
        ("", "nvidia"),
        ("A100-SXM4-40GB", "nvidia"),
        ("GeForce RTX 4090", "nvidia"),
        ("Quadro RTX 8000", "nvidia"),
        ("GRID A100D-40C", "nvidia"),
        ("GH200", "nvidia"),
    ],
)
def test_vendor_of_a_model(gpu_model: str, vendor: Vendor) -> None:
    """As drivers, NVML and vGPUs name their GPUs; a name without a maker is NVIDIA's."""
    assert vendor_of(gpu_model) == vendor


@pytest.mark.parametrize(
    "gpu_model",
    ["Intel(R) Data Center GPU Max 1550", "Intel Arc B580", "Data Center GPU Flex 170", "Gaudi 3",
     "Apple M4 Max", "Moore Threads MTT S4000", "Ascend 910B"],
)  # fmt: skip
def test_a_gpu_of_another_maker_gets_no_limit(gpu_model: str) -> None:
    with pytest.raises(InputError, match=r"neither NVIDIA nor AMD.*gpu_model"):
        vendor_of(gpu_model)


@each_gpu
def test_every_count_that_can_be_granted_has_a_share(total: int, vendor: Vendor) -> None:
    counts = grantable(total, vendor)
    assert counts[-1] == total
    assert {b - a for a, b in pairwise(counts)} == {quantum(total, vendor)}
    for count in counts:
        assert units_for_share(share_for_units(count, total, vendor), total, vendor) == count


@given(st.floats(0.1, 99.9), gpus)
def test_nvidia_is_given_the_percentage_alone(percent: float, gpu: tuple[int, Vendor]) -> None:
    """The driver counts SMs by itself, and from which end is of no account."""
    for share in (Share(percent), Share(percent, upper=True)):
        for total in (gpu[0], None):
            assert share_environment(share, total, "nvidia") == {PERCENTAGE: str(share)}


@given(st.floats(0.1, 99.9), st.floats(0.1, 99.9), amd_totals)
def test_two_masks_never_overlap(one: float, other: float, total: int) -> None:
    first, second = one, min(other, 100 - one)
    a, b = split_environments(Split((first, second)), total, "amd")
    assert bits(a) & bits(b) == 0
    assert bits(a).bit_count() == units_for_share(first, total, "amd")
    assert bits(b).bit_count() == units_for_share(second, total, "amd")


MASKED_GPUS = {
    "MI300X SPX": (304, 8),
    "MI300X CPX": (38, 1),
    "MI250X": (110, 1),
    "MI210": (104, 1),
}


each_masked_gpu = pytest.mark.parametrize(("total", "xcds"), MASKED_GPUS.values(), ids=MASKED_GPUS)


masked_gpus = st.sampled_from(list(MASKED_GPUS.values()))


cu_ids = st.lists(st.integers(0, 303), min_size=1, unique=True)


def test_mi300x_shares() -> None:
    """The shares of an MI300X in SPX mode are these, whole rows of 32 where they are near."""
    shares = [cu_mask.cus_for_percent(percent, 304, 8) for percent in range(10, 101, 10)]
    assert shares == [32, 64, 96, 128, 152, 176, 208, 240, 272, 304]


@given(masked_gpus, st.integers(1, 199).map(lambda halves: halves / 2))
def test_two_shares_of_a_split_fill_the_gpu(gpu: tuple[int, int], percent: float) -> None:
    total, xcds = gpu
    first = cu_mask.cus_for_percent(percent, total, xcds)
    assert first + cu_mask.cus_for_percent(100 - percent, total, xcds) == total


@each_masked_gpu
def test_every_count_round_trips(total: int, xcds: int) -> None:
    for cus in range(xcds, total + 1, xcds):
        percent = 100 * cus / total
        for written in (percent, float(f"{percent:g}"), round(percent, 3)):
            assert cu_mask.cus_for_percent(written, total, xcds) == cus


@each_masked_gpu
def test_impossible_count_is_refused(total: int, xcds: int) -> None:
    for cus in (-xcds, 0, total + xcds, *([xcds // 2, xcds + 1] if xcds > 1 else [])):
        with pytest.raises(InputError):
            cu_mask.check_cus(cus, total, xcds)


@pytest.mark.parametrize(
    ("cus", "near"), [(0, "8 or 16"), (9, "8 or 16"), (100, "96 or 104"), (312, "304")]
)
def test_the_nearest_possible_counts_are_named(cus: int, near: str) -> None:
    with pytest.raises(InputError, match=rf"ask for {near}\.$"):
        cu_mask.check_cus(cus, 304, 8)


@pytest.mark.parametrize(("total", "xcds"), [(300, 8), (8, 8), (0, 1), (38, 0), (38, -1)])
def test_unlikely_gpu_is_refused(total: int, xcds: int) -> None:
    """A GPU whose XCDs are not alike is not guessed at."""
    with pytest.raises(InputError, match="cannot be shared"):
        cu_mask.cus_for_percent(50, total, xcds)


@pytest.mark.parametrize(
    ("ids", "text"),
    [((0, 1, 2, 3), "0:0-3"), ((5,), "0:5"), ((4, 0, 1, 7, 6), "0:0-1,4,6-7")],
)
def test_mask_text(ids: tuple[int, ...], text: str) -> None:
    assert cu_mask.mask_env(ids)["HSA_CU_MASK"] == text


@given(cu_ids)
def test_what_is_written_reads_back(ids: list[int]) -> None:
    env = cu_mask.mask_env(ids)
    gpu, _, ranges = env["HSA_CU_MASK"].partition(":")
    ends = [[*map(int, item.split("-"))] for item in ranges.split(",")]
    assert (gpu, [cu for end in ends for cu in range(end[0], end[-1] + 1)]) == ("0", sorted(ids))
    bits = int(env["ROC_GLOBAL_CU_MASK"], 16)
    assert [cu for cu in range(304) if bits >> cu & 1] == sorted(ids)


@pytest.mark.parametrize("ids", [(), (1, 1), (-1, 0)])
def test_ids_that_lift_the_limit_are_refused(ids: tuple[int, ...]) -> None:
    with pytest.raises(InputError):
        cu_mask.mask_env(ids)


@pytest.mark.parametrize("value", ["1", "true", "2"])
def test_skipped_mask_is_refused(value: str) -> None:
    """A job is not started where ROCr is told to leave the mask out."""
    with pytest.raises(LimitNotProvenError, match="unset HSA_CU_MASK_SKIP_INIT"):
        cu_mask.refuse_if_skipped({"HSA_CU_MASK_SKIP_INIT": value})
