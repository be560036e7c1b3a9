"""CU masks: every share of every GPU, and never the syntax that lifts the limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core import gpu as cu_mask
from advisor.errors import InputError, LimitNotProvenError

GPUS = {"MI300X SPX": (304, 8), "MI300X CPX": (38, 1), "MI250X": (110, 1), "MI210": (104, 1)}
each_gpu = pytest.mark.parametrize(("total", "xcds"), GPUS.values(), ids=GPUS)
gpus = st.sampled_from(list(GPUS.values()))
percents = st.floats(0, 100, exclude_min=True, exclude_max=True)
cu_ids = st.lists(st.integers(0, 303), min_size=1, unique=True)


def test_mi300x_shares() -> None:
    """The shares of an MI300X in SPX mode are these, whole rows of 32 where they are near."""
    shares = [cu_mask.cus_for_percent(percent, 304, 8) for percent in range(10, 101, 10)]
    assert shares == [32, 64, 96, 128, 152, 176, 208, 240, 272, 304]


@given(gpus, percents)
def test_share_is_near_and_can_be_granted(gpu: tuple[int, int], percent: float) -> None:
    total, xcds = gpu
    cus = cu_mask.cus_for_percent(percent, total, xcds)
    assert cu_mask.check_cus(cus, total, xcds) == cus
    assert abs(cus - percent * total / 100) <= xcds


@given(gpus, st.integers(1, 199).map(lambda halves: halves / 2))
def test_two_shares_of_a_split_fill_the_gpu(gpu: tuple[int, int], percent: float) -> None:
    """The counts of p and 100 - p add up to the GPU, so the two masks are disjoint."""
    total, xcds = gpu
    first = cu_mask.cus_for_percent(percent, total, xcds)
    assert first + cu_mask.cus_for_percent(100 - percent, total, xcds) == total


@given(gpus, percents, percents)
def test_more_percent_is_never_fewer_cus(gpu: tuple[int, int], one: float, other: float) -> None:
    low, high = (cu_mask.cus_for_percent(percent, *gpu) for percent in sorted((one, other)))
    assert low <= high


@each_gpu
def test_every_count_round_trips(total: int, xcds: int) -> None:
    """Any count that a mask can have is what its own percentage gives, rounded or not."""
    for cus in range(xcds, total + 1, xcds):
        percent = 100 * cus / total
        for written in (percent, float(f"{percent:g}"), round(percent, 3)):
            assert cu_mask.cus_for_percent(written, total, xcds) == cus


@each_gpu
def test_impossible_count_is_refused(total: int, xcds: int) -> None:
    """No mask is made that leaves an XCD or a job without a CU."""
    for cus in (-xcds, 0, total + xcds, *([xcds // 2, xcds + 1] if xcds > 1 else [])):
        with pytest.raises(InputError):
            cu_mask.check_cus(cus, total, xcds)


@pytest.mark.parametrize(("total", "xcds"), [(300, 8), (8, 8), (0, 1), (38, 0), (38, -1)])
def test_unlikely_gpu_is_refused(total: int, xcds: int) -> None:
    """A GPU whose XCDs are not alike is not guessed at."""
    with pytest.raises(InputError, match="cannot be shared"):
        cu_mask.cus_for_percent(50, total, xcds)


@pytest.mark.parametrize("percent", [0, -1, 101, float("nan")])
def test_impossible_share_is_refused(percent: float) -> None:
    """A share that NVIDIA's driver would take as no limit is none here either."""
    with pytest.raises(InputError, match="not possible"):
        cu_mask.cus_for_percent(percent, 304, 8)


@pytest.mark.parametrize(
    ("ids", "text"),
    [((0, 1, 2, 3), "0:0-3"), ((5,), "0:5"), ((4, 0, 1, 7, 6), "0:0-1,4,6-7")],
)
def test_mask_text(ids: tuple[int, ...], text: str) -> None:
    assert cu_mask.mask_env(ids)["HSA_CU_MASK"] == text


@given(cu_ids)
def test_what_is_written_reads_back(ids: list[int]) -> None:
    """Both masks say exactly the ids, in rising ranges of the first visible GPU."""
    env = cu_mask.mask_env(ids)
    gpu, _, ranges = env["HSA_CU_MASK"].partition(":")
    ends = [[*map(int, item.split("-"))] for item in ranges.split(",")]
    assert gpu == "0"
    assert [cu for end in ends for cu in range(end[0], end[-1] + 1)] == sorted(ids)
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
