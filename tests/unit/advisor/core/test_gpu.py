"""The arithmetic between percent and SMs, and splits as people write them."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, fields
from itertools import pairwise
from random import Random

import pytest
from hypothesis import assume, given, strategies as st

from advisor.core import gpu as cu_mask
from advisor.core.gpu import (
    ALL_GPUS,
    EQUAL,
    MEMORY_PART,
    PERCENTAGE,
    PRIORITY,
    SM_FLOOR,
    TIME_SLICED,
    UNCAPPED,
    Gpu,
    MemoryFit,
    Share,
    Split,
    Vendor,
    best_within_tie,
    fine_splits,
    grantable,
    named_model,
    percent_for_units,
    quantum,
    share_for_units,
    units_for_percent,
    units_for_share,
    vendor_of,
    without_limits,
)
from advisor.core.records import Counters, SoloPoint
from advisor.core.telemetry import (
    COUNTERS,
    ENERGY_GPU,
    MEMORY_USED,
    POWER_GPU,
    UNITS,
    ReadingGate,
    channels_of,
    counters_of,
    power_scope,
)
from advisor.errors import InputError, LimitNotProvenError

TOTALS = range(80, 201)


@pytest.mark.parametrize(
    ("total", "granted"),
    [
        # An H200 and an RTX PRO 6000.
        (132, {10: 12, 20: 26, 30: 38, 40: 52, 50: 66, 60: 78, 70: 92, 80: 104, 90: 118, 100: 132}),
        (132, {1: 8, 2: 8, 5: 8, 9: 10, 12.5: 16, 33.3: 42, 50.5: 66, 91: 120, 99: 130}),
        (188, {25: 46, 50: 94, 75: 140}),
    ],
)
def test_a_gpu_grants_what_was_read_back(total: int, granted: dict[float, int]) -> None:
    assert {percent: units_for_percent(percent, total) for percent in granted} == granted


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


def test_a_part_of_a_name_names_the_one_gpu_model_that_has_it() -> None:
    """The whole name goes before names that it is a part of; what none has stays as it is."""
    models = ["NVIDIA H200", "NVIDIA H200 NVL", "NVIDIA L40S"]
    named = [named_model(text, models) for text in ("l40", "NVIDIA H200", "nvl", "B200")]
    assert named == ["NVIDIA L40S", "NVIDIA H200", "NVIDIA H200 NVL", "B200"]
    with pytest.raises(InputError, match=r"h200 is a part of .*: NVIDIA H200, NVIDIA H200 NVL"):
        named_model("h200", models)


@each_gpu
def test_every_count_that_can_be_granted_has_a_share(total: int, vendor: Vendor) -> None:
    counts = grantable(total, vendor)
    assert (counts[-1], {b - a for a, b in pairwise(counts)}) == (total, {quantum(total, vendor)})
    for count in counts:
        assert units_for_share(share_for_units(count, total, vendor), total, vendor) == count


@given(st.floats(0.1, 99.9), gpus)
def test_nvidia_is_given_the_percentage_alone(percent: float, gpu: tuple[int, Vendor]) -> None:
    """The driver counts SMs by itself, and from which end is of no account."""
    for share in (Share(percent), Share(percent, upper=True)):
        for total in (gpu[0], None):
            assert share.environment(total, "nvidia") == {PERCENTAGE: str(share)}


@given(st.floats(0.1, 99.9), st.floats(0.1, 99.9), amd_totals)
def test_two_masks_never_overlap(one: float, other: float, total: int) -> None:
    first, second = one, min(other, 100 - one)
    a, b = Split((first, second)).environments(total, "amd")
    assert (bits(a) & bits(b), bits(a).bit_count()) == (0, units_for_share(first, total, "amd"))
    assert bits(b).bit_count() == units_for_share(second, total, "amd")


MASKED_GPUS = {
    "MI300X SPX": (304, 8),
    "MI300X CPX": (38, 1),
    "MI250X": (110, 1),
    "MI210": (104, 1),
}


each_masked_gpu = pytest.mark.parametrize(("total", "xcds"), MASKED_GPUS.values(), ids=MASKED_GPUS)


masked_gpus = st.sampled_from(list(MASKED_GPUS.values()))


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
    [(range(4), "0:0-3"), (range(5, 6), "0:5"), (range(6, 8), "0:6-7")],
)
def test_mask_text(ids: range, text: str) -> None:
    assert cu_mask.mask_env(ids)["HSA_CU_MASK"] == text


@given(st.lists(st.integers(0, 304), min_size=2, max_size=2, unique=True).map(sorted))
def test_what_is_written_reads_back(ends: list[int]) -> None:
    env, cus = cu_mask.mask_env(range(*ends)), [*range(*ends)]
    gpu, _, text = env["HSA_CU_MASK"].partition(":")
    first, _, last = text.partition("-")
    assert (gpu, [*range(int(first), int(last or first) + 1)]) == ("0", cus)
    bits = int(env["ROC_GLOBAL_CU_MASK"], 16)
    assert [cu for cu in range(304) if bits >> cu & 1] == cus


@pytest.mark.parametrize("ids", [range(0), range(-1, 1)])
def test_ids_that_lift_the_limit_are_refused(ids: range) -> None:
    with pytest.raises(InputError):
        cu_mask.mask_env(ids)


@pytest.mark.parametrize("value", ["1", "true", "2"])
def test_skipped_mask_is_refused(value: str) -> None:
    """A job is not started where ROCr is told to leave the mask out."""
    with pytest.raises(LimitNotProvenError, match="unset HSA_CU_MASK_SKIP_INIT"):
        cu_mask.refuse_if_skipped({"HSA_CU_MASK_SKIP_INIT": value})


shares = st.integers(1, 1000).map(lambda tenths: tenths / 10)
limited = st.lists(shares, min_size=2, max_size=5).map(lambda found: Split(tuple(found)))


@given(limited | st.sampled_from([UNCAPPED, TIME_SLICED, without_limits("exclusive")]))
def test_text_is_read_as_it_was_written(split: Split) -> None:
    read = Split.parse(str(split))
    assert str(read) == str(split) or read.sharing == "uncapped"
    assert read.shares == split.shares


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("30/70", Split((30.0, 70.0))),
        ("20/30/50", Split((20.0, 30.0, 50.0))),
        ("12.5 / 87.5", Split((12.5, 87.5))),
        ("100/100", UNCAPPED),
        ("100/100/100", without_limits("uncapped", 3)),
        ("100/50", Split((100.0, 50.0))),
        ("uncapped", UNCAPPED),
        ("time-sliced", TIME_SLICED),
        ("exclusive", without_limits("exclusive")),
    ],
)
def test_texts(text: str, split: Split) -> None:
    assert Split.parse(text) == split


def test_neighbours_of_a_job_of_two_gpus_have_one_each() -> None:
    text = "100/50@0/100@1"
    split = Split.parse(text, 3, gpus=2)
    assert (str(split), split.sharing, split.gpus) == (text, "limited", (ALL_GPUS, 0, 1))
    assert (split.each_gpu, split.each_share[2].gpu) == (((0, 1), (0, 2)), 1)
    seen = [own["CUDA_VISIBLE_DEVICES"] for own in split.environments(132, "nvidia")]
    assert seen == ["0,1", "0", "1"]
    for gpus, wrong in ((1, text), (2, "100/100@2")):
        with pytest.raises(InputError, match="names GPU"):
            Split.parse(wrong, gpus=gpus)


NO_LIMIT = (
    "the split {!r} is not possible. the driver takes 0 and percentages above 100 as no limit at "
    "all. give shares above 0 and at most 100 %."
)
HOW = "write percentages such as 30/70 or 100:low/50, or uncapped, time-sliced or exclusive."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # The driver takes these as no limit.
        *((text, NO_LIMIT) for text in ("0/100", "50/0", "50/101", "0/0")),
        ("time sliced", "{!r} is not a split. the nearest is time-sliced. " + HOW),
        *(
            (text, "{!r} is not a split. " + HOW)
            for text in (
                "", "50", "30:70", "30/", "/70", "a/b", "50/nan", "50/inf", "-1/50", "1e1/90",
                "50%/50%", "low/100", "100:LOW/50",
            )
        ),
    ],
)  # fmt: skip
def test_what_is_no_split(text: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        Split.parse(text)
    assert str(refused.value) == message.format(text)


@pytest.mark.parametrize("found", [(), (0.0,), (0.0, 50.0), (50.0, float("nan"))])
def test_impossible_splits(found: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match=r"not possible|no limit"):
        Split(found)


SIZES: list[tuple[int, Vendor]] = [
    *((units, "nvidia") for units in (80, 108, 131, 132, 133, 142, 188)),
    *((units, "amd") for units in (38, 104, 110, 228, 304)),
]


@pytest.mark.parametrize(("units_total", "vendor"), SIZES)
def test_fine_splits_are_all_that_leave_no_unit_over(units_total: int, vendor: Vendor) -> None:
    """Each count that can be granted stands once with what is left, but for a half quantum."""
    step = quantum(units_total, vendor)
    together = units_total // step * step
    found = [
        tuple(units_for_share(share, units_total, vendor) for share in split.shares)
        for split in fine_splits(units_total, vendor)
    ]
    assert all(split.is_limited for split in fine_splits(units_total, vendor))
    possible = [units for units in grantable(units_total, vendor) if units % step == 0]
    assert found == [(u, together - u) for u in possible if together - u in possible]
    assert found[0][0] == possible[0]


def test_counts_that_are_no_split() -> None:
    assert Split.of_units((12, 118), 132, "nvidia") == Split((10.0, 90.0))
    with pytest.raises(InputError, match="13 of 132 SMs cannot be granted"):
        Split.of_units((13, 119), 132, "nvidia")


@given(st.lists(st.floats(0, 10), min_size=1), st.floats(0, 0.5))
def test_best_within_a_tie(values: list[float], tie: float) -> None:
    found = best_within_tie(values, lambda value: value, tie, lambda value, worth: worth)
    assert found == min(value for value in values if value >= max(values) * (1 - tie))


@pytest.mark.parametrize(
    ("values", "tie", "text"),
    [
        ([], 0.0, "there is no split to choose from."),
        *(
            ([1.0], tie, f"a tie of {tie} is not possible. give 0 up to below 1.")
            for tie in (1.0, 1.5, -0.1, float("nan"))
        ),
    ],
)
def test_nothing_to_choose_from(values: list[float], tie: float, text: str) -> None:
    with pytest.raises(InputError) as refused:
        best_within_tie(values, float, tie, lambda value, _: value)
    assert str(refused.value) == text


def test_environments_without_limits() -> None:
    assert UNCAPPED.environments(None, "amd") == ({}, {})
    assert [share.upper for share in EQUAL.each_share] == [False, True]
    assert [share.upper for share in Split((20, 30, 50)).each_share] == [False, False, True]


def test_environments_of_limits() -> None:
    split = Split((30.0, 50.0))
    assert split.environments(None, "nvidia") == (
        {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30"},
        {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"},
    )
    assert [env["HSA_CU_MASK"] for env in split.environments(100, "amd")] == ["0:0-29", "0:50-99"]
    with pytest.raises(InputError, match="the number of CUs of the GPU is not known"):
        split.environments(None, "amd")


def test_masks_of_three_jobs_are_refused_where_they_would_overlap() -> None:
    """Two of 20/30/50 begin at the same CU. MPS counts for itself, and no limit needs no mask."""
    three = Split((20.0, 30.0, 50.0))
    with pytest.raises(InputError, match="20/30/50 is not possible on an AMD GPU"):
        three.environments(304, "amd")
    assert len(three.environments(132, "nvidia")) == 3
    assert without_limits("uncapped", 3).environments(304, "amd") == ({}, {}, {})
    two = Split((100.0, 25.0, 50.0, 100.0)).environments(304, "amd")
    assert [env.get("HSA_CU_MASK") for env in two] == [None, "0:0-79", "0:152-303", None]


@given(st.lists(st.tuples(shares, st.booleans()), min_size=2, max_size=7), st.randoms())
def test_priority_is_in_the_text_and_in_the_environment_of_its_job(
    seats: list[tuple[float, bool]], chance: Random
) -> None:
    """What is written is read again, and in another order of the jobs it stays with its job."""
    low = tuple(n for n, (_, is_low) in enumerate(seats) if is_low)
    assume(len(low) < len(seats))
    written = "/".join(f"{share:g}{':low' * is_low}" for share, is_low in seats)
    split = Split.parse(written, len(seats))
    assert (split.below_normal, Split.parse(str(split), len(seats))) == (low, split)
    variables = split.environments(132, "nvidia")
    assert tuple(n for n, env in enumerate(variables) if env.get(PRIORITY) == "1") == low
    order = chance.sample(range(len(seats)), len(seats))
    moved = split.ordered(order)
    assert moved.seats == tuple(split.seats[n] for n in order)
    assert (moved.below_normal == ()) == (low == ())


def test_priority_below_normal_is_of_some_jobs_under_mps() -> None:
    with pytest.raises(InputError, match="all jobs below normal priority wait for each other"):
        Split.parse("100:low/100:low")
    with pytest.raises(InputError, match="not possible on an AMD GPU"):
        Split.parse("100:low/100").environments(304, "amd")


needs = st.lists(st.none() | st.floats(0, 1e6), min_size=1, max_size=4).map(tuple)


@given(needs, st.none() | st.floats(1, 1e6))
def test_memory(needs_mib: tuple[float | None, ...], card_mib: float | None) -> None:
    found = MemoryFit(needs_mib, card_mib)
    known = sum(need for need in needs_mib if need is not None)
    assert found.is_too_much == (card_mib is not None and known > MEMORY_PART * card_mib)
    if card_mib is None or None in needs_mib:
        assert found.fits is None
    else:
        assert found.fits is not found.is_too_much
    for job, need in enumerate(needs_mib):
        limit_mib = found.limit_mib(job)
        assert (limit_mib is None) == (need is None)
        if limit_mib and need is not None:
            assert limit_mib >= need + 512
            # Beside the needs of the others, it fits into the card where all do.
            assert limit_mib <= max(1.1 * need + 513, (found.most_mib or 0) - known + need + 1)
            assert need <= (found.limit_mib(job, 0) or 0) <= limit_mib


@pytest.mark.parametrize(
    ("bounds_mib", "by"),
    [((), None), ((67_488,), None), ((67_489,), 0), ((None, 62_000), None), ((1, 62_001), 1)],
)
def test_memory_beside_those_that_run(bounds_mib: tuple[float | None, ...], by: int | None) -> None:
    found = MemoryFit((10_000, 5_000, None, 20_000), 100_000)
    assert found.crowded_by(bounds_mib) == by
    assert MemoryFit(found.needs_mib, None).crowded_by(bounds_mib) is None


# Channels: one name, one unit and one column each.


def test_every_column_of_counters_is_a_channel_with_its_unit() -> None:
    columns = {field.name: field for field in fields(SoloPoint)}
    assert set(COUNTERS.values()) == {field.name for field in fields(Counters)}
    for name, column in COUNTERS.items():
        assert UNITS[name] == columns[column].metadata["unit"]
    assert (COUNTERS["counter.sm_active"], COUNTERS["counter.nvlink_tx"]) == (
        "sm_active_percent",
        "nvlink_tx_mib_per_s",
    )


@given(st.dictionaries(st.sampled_from(sorted(COUNTERS)), st.none() | st.floats(0, 100)))
def test_readings_become_columns(readings: dict[str, float | None]) -> None:
    found = asdict(counters_of({**readings, "power.gpu": 5.0}))
    assert found == {column: readings.get(name) for name, column in COUNTERS.items()}


def test_kinds_of_channels() -> None:
    kinds = {channel.name: channel.kind for channel in channels_of(UNITS)}
    assert {name for name, kind in kinds.items() if kind == "total"} == {ENERGY_GPU}
    assert {name for name, kind in kinds.items() if kind == "mean"} == set(COUNTERS)


CARD = Gpu(uuid="GPU-1", model="NVIDIA H200", power_limit_w=700.0, memory_mib=143_771)


@pytest.mark.parametrize(
    ("name", "value", "passes"),
    [
        (POWER_GPU, 1050.0, True),
        (POWER_GPU, 1051.0, False),
        (POWER_GPU, -1.0, False),
        (POWER_GPU, math.nan, False),
        (MEMORY_USED, 143_771.0, True),
        (MEMORY_USED, 2.0**32 - 1, False),
        ("counter.sm_active", 100.4, True),
        ("counter.sm_active", 4e9, False),
        ("counter.nvlink_tx", 900_000.0, True),
        ("clock.memory", 14_001.0, True),
        ("clock.sm", 2.0**31, False),
        ("temperature.gpu", 0.0, True),
        (ENERGY_GPU, math.inf, False),
    ],
)
def test_what_a_card_cannot_read_is_not_read(name: str, value: float, passes: bool) -> None:
    gate = ReadingGate(CARD, lambda: 700.0)
    found = gate.sift({name: value, "power.memory": 80.0, "power.limit": None})
    assert found == {name: value if passes else None, "power.memory": 80.0, "power.limit": None}
    assert bool(gate.left_out) is not passes


def test_a_limit_that_is_none_bounds_nothing() -> None:
    """The largest card's does."""
    unknown = ReadingGate(Gpu(uuid="x", model="y", power_limit_w=7.5e8), lambda: 7.5e8)
    assert [unknown.sift({POWER_GPU: w})[POWER_GPU] for w in (1900.0, 3.7e6)] == [1900.0, None]


@pytest.mark.parametrize(
    ("raw_j", "found_j", "step_s", "said"),
    [
        # A number from elsewhere, up or down, costs itself alone.
        ((1000, 1500, 9e12, 2500, 3000), (1000, 1500, None, 2500, 3000), 1, True),
        ((1000, 1500, 0, 2500, 3000), (1000, 1500, None, 2500, 3000), 1, True),
        ((1000, 9e12, 4e12, 2500, 3000), (1000, None, None, 2500, 3000), 1, True),
        # A driver that was loaded again counts from nothing, which is no impossible reading.
        ((90_000, 10, 600, 1200), (90_000, None, 600, 1200), 1, False),
        # A total that stays far above begins again: the jump is never added.
        ((90_000, 9e12, 9e12 + 600, 9e12 + 900), (90_000, None, 600, 900), 1, False),
        ((9e12, 1000, 1600, 2000), (9e12, None, 1600, 2000), 1, False),
        # It is believed after a long silence.
        ((0, 2.5e6), (0, 2.5e6), 3600, False),
    ],
)
def test_a_counter_cannot_jump(
    raw_j: Sequence[float], found_j: Sequence[float | None], step_s: int, said: bool
) -> None:
    gate = ReadingGate(CARD, lambda: 700.0, itertools.count(0, step_s).__next__)
    assert [gate.sift({ENERGY_GPU: value})[ENERGY_GPU] for value in raw_j] == [*found_j]
    assert bool(gate.left_out) is said


def test_impossible_readings_are_counted_and_said(caplog: pytest.LogCaptureFixture) -> None:
    """Said when there are one, ten, a hundred: a sensor that is broken fills no log."""
    gate = ReadingGate(CARD, lambda: 700.0)
    for _ in range(25):
        gate.sift({POWER_GPU: 3.7e6})
    said = "25 impossible readings left out, such as power.gpu of 3,700,000 W (at most 1,050)"
    assert gate.left_out == said
    assert [record.getMessage()[:9] for record in caplog.records] == [
        "GPU-1: 1 ", "GPU-1: 10",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "energy_j", "power_w"),
    [
        ("NVIDIA GH200 480GB", None, 80.0),
        ("AMD Instinct MI250X", None, None),
        ("NVIDIA H200", 5.0, 80.0),
    ],
)
def test_what_is_of_more_than_the_gpu_is_withheld(
    model: str, energy_j: float | None, power_w: float | None
) -> None:
    gate = ReadingGate(Gpu(uuid="x", model=model), lambda: None)
    found = gate.sift({ENERGY_GPU: 5.0, POWER_GPU: 80.0})
    assert found == {ENERGY_GPU: energy_j, POWER_GPU: power_w}
    assert bool(power_scope(model)[1]) == (energy_j is None)
    assert gate.left_out == ""
