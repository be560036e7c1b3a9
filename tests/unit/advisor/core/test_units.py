"""Units by vendor: counts in steps of the GPU's own, and limits that fit the GPU."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.gpu import (
    PERCENTAGE,
    Share,
    Vendor,
    grantable,
    quantum,
    share_environment,
    share_for_units,
    units_for_share,
    vendor_of,
)
from advisor.core.split import Split, split_environments
from advisor.errors import InputError

GPUS: list[tuple[int, Vendor]] = [
    (132, "nvidia"), (108, "nvidia"), (304, "amd"), (228, "amd"), (110, "amd"), (38, "amd"),
]  # fmt: skip
gpus = st.sampled_from(GPUS)
amd_totals = st.sampled_from([total for total, vendor in GPUS if vendor == "amd"])
each_gpu = pytest.mark.parametrize(("total", "vendor"), GPUS)


def bits(environment: dict[str, str]) -> int:
    """The CUs of a mask as HIP reads it."""
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
    """Counts stand a quantum apart, end with the whole GPU, and are what their shares give."""
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
    """Of shares that add up to 100 % or less; each has as many CUs as its share is granted."""
    first, second = one, min(other, 100 - one)
    a, b = split_environments(Split((first, second)), total, "amd")
    assert bits(a) & bits(b) == 0
    assert bits(a).bit_count() == units_for_share(first, total, "amd")
    assert bits(b).bit_count() == units_for_share(second, total, "amd")
