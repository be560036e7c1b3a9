"""The dcgm-exporter source: pure parsing, and the client over real HTTP."""

import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

import exporter as fake
import pytest
from exporter import CLASSIC, LABELS, RENAMED, UUID, Exporter, Fault, text
from hypothesis import given, strategies as st

from advisor.core.gpu import Gpu
from advisor.errors import SourceError
from advisor_profiling.telemetry import dcgm
from advisor_profiling.telemetry.dcgm import (
    COUNTERS,
    STATE,
    DcgmSource,
    csv_lines,
    fetch,
    missing_counters,
    values_of,
)

GPU = Gpu(uuid=UUID, model="NVIDIA H200")
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
SM_ACTIVE = "DCGM_FI_PROF_SM_ACTIVE"

POWER = ("power.gpu",)

EXPECTED = {
    "counter.sm_active": 50,
    "counter.sm_occupancy": 25,
    "counter.fp32_active": 2,
    "counter.fp64_active": 1,
    "counter.fp16_active": 3,
    "counter.tensor_active": 12.5,
    "counter.integer_active": 6.25,
    "counter.dram_active": 75,
    "counter.gpu_busy": 87.5,
    "counter.memory_busy": 33,
    "counter.pcie_tx": 1,
    "counter.pcie_rx": 2,
    "counter.nvlink_tx": 3,
    "counter.nvlink_rx": 4,
    "power.gpu": 250.5,
    "energy.gpu": 7.5,
    "clock.sm": 1410,
    "clock.memory": 2619,
    "temperature.gpu": 61,
    "memory.used": 2048,
    "power.limit": 700,
    "throttle mask": 4,
}


def renamed(values: dict[str, float]) -> dict[str, float]:
    """The values under their names of DCGM 4.6."""
    return {RENAMED.get(name, name): value for name, value in values.items()}


@pytest.mark.parametrize("values", [CLASSIC, renamed(CLASSIC)], ids=["classic", "4.6"])
def test_both_generations_of_names_mean_the_same(values: dict[str, float]) -> None:
    """Every field is read under either name in the units of NVML; instant power wins."""
    assert values_of(text(values), GPU) == pytest.approx(EXPECTED)
    assert missing_counters(text(values)) == ()
    both = values | {"DCGM_FI_DEV_POWER_USAGE_INSTANT": 300.0}
    assert values_of(text(both), GPU)["power.gpu"] == 300
    assert set(EXPECTED) == set(COUNTERS) | set(STATE)


@pytest.mark.parametrize("spell", [str.lower, str.upper, str.title])
def test_labels_are_read_without_case(spell: Callable[[str], str]) -> None:
    """UUID, uuid and Uuid are the same label, as exporters of different ages write them."""
    labels = {spell(key): value for key, value in LABELS.items()}
    assert values_of(text(CLASSIC, labels), GPU) == pytest.approx(EXPECTED)


@given(st.integers(1, 6), st.floats(0, 1))
def test_repeated_rows_of_pods_count_once(pods: int, value: float) -> None:
    """A value repeated for each pod on a GPU, replicas included, is neither summed nor lost."""
    labels = [LABELS | {"pod": f"p{n}", "UUID": f"{UUID}::{n}"} for n in range(pods)]
    assert values_of(text({SM_ACTIVE: value}, *labels), GPU) == {"counter.sm_active": value * 100}


MIG = LABELS | {"GPU_I_ID": "3", "GPU_I_PROFILE": "1g.18gb"}
HALF = text({SM_ACTIVE: 0.5})
FIRST, SECOND = (text({"DCGM_FI_DEV_FB_USED": v}, LABELS | {"pod": f"{v}"}) for v in (1, 2))
BLANKS = ("140737488355328", "9223372036854775792")


@pytest.mark.parametrize(
    ("rows", "shown"),
    [
        (text({SM_ACTIVE: 0.9}, LABELS | {"UUID": "GPU-other"}) + HALF, 50),
        (text({SM_ACTIVE: 0.5}, LABELS | {"gpu": "7"}), 50),
        # The index decides where rows have no UUID.
        (text({SM_ACTIVE: 0.5}, {"gpu": "0"}) + text({SM_ACTIVE: 0.25}, {"gpu": "1"}), 50),
        # With virtual GPUs the used memory is a process's; that is not given as the GPU's.
        (FIRST + SECOND + HALF, 50),
        (text({SM_ACTIVE: 0.9}, MIG) + HALF, 50),
        # DCGM's numbers for "no value" are missing readings, not huge ones.
        *((text({"DCGM_FI_DEV_SM_CLOCK": blank}) + HALF, 50) for blank in BLANKS),
    ],
)
def test_rows_of_something_else_do_not_count(rows: str, shown: float) -> None:
    assert values_of(rows, GPU) == {"counter.sm_active": shown}


@pytest.mark.parametrize(
    ("rows", "uuid", "says"),
    [
        (text({SM_ACTIVE: 0.9}, MIG), UUID, "only rows of MIG instances"),
        (text(CLASSIC), "GPU-me", f"no row for GPU-me.*it shows {UUID}"),
    ],
)
def test_rows_without_a_reading_are_an_error(rows: str, uuid: str, says: str) -> None:
    with pytest.raises(SourceError, match=says):
        values_of(rows, Gpu(uuid=uuid, model="", index=0 if uuid == UUID else 5))


@given(st.text(max_size=200))
def test_any_text_gives_values_or_our_error(body: str) -> None:
    try:
        values = values_of(body, GPU)
    except SourceError:
        return
    assert values


def test_missing_counters_name_the_lines_to_add() -> None:
    """The exporter's default CSV gives no SM activity; each missing field has its CSV line."""
    missing = tuple(
        f"DCGM_FI_PROF_{name}_ACTIVE" for name in ("SM", "PIPE_FP64", "PIPE_FP32", "PIPE_FP16")
    )
    assert missing_counters(text({k: v for k, v in CLASSIC.items() if k not in missing})) == missing
    lines = csv_lines(missing).splitlines()
    assert [line.split(", ")[:2] for line in lines] == [[field, "gauge"] for field in missing]
    assert all(line.count(",") == 2 for line in lines)


@dataclass
class Clock:
    """Seconds that a test sets."""

    now_s: float = 100

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def server() -> Iterator[Exporter]:
    with fake.exporter(text(CLASSIC)) as state:
        yield state


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def source(server: Exporter, clock: Clock) -> Iterator[DcgmSource]:
    """A source on that exporter, once a second."""
    with closing(DcgmSource(server.url, GPU, 1.0, clock)) as opened:
        yield opened


def collect(server: Exporter, clock: Clock, energy_mj: float, sm_active: float) -> None:
    """A second later the exporter has collected again."""
    clock.now_s += 1
    server.text = text(CLASSIC | {ENERGY: energy_mj, SM_ACTIVE: sm_active})


def test_readings_come_from_the_exporter(source: DcgmSource) -> None:
    found = source.read(("power.gpu", "energy.gpu", "clock.sm", "memory.used", "power.limit"))
    assert [*found.values()] == [250.5, 7.5, 1410, 2048, 700]
    assert (source.gpu, source.throttle_reasons()) == (GPU, ("sw-power-cap",))
    assert {channel.name for channel in source.channels} == EXPECTED.keys() - {"throttle mask"}
    assert source.processes_memory_mib([1]) is None


def test_fields_that_are_not_shown_are_none(server: Exporter) -> None:
    server.text = text({k: v for k, v in CLASSIC.items() if "_PROF_" in k})
    names = ("power.gpu", "energy.gpu", "power.memory")
    with closing(DcgmSource(server.url, GPU)) as source:
        assert source.read(names) == dict.fromkeys(names)
        assert {channel.name for channel in source.channels}.isdisjoint(names)
        assert source.throttle_reasons() is None


def test_exporter_is_asked_once_per_interval(
    server: Exporter, clock: Clock, source: DcgmSource
) -> None:
    for step in range(100):
        clock.now_s = 100 + step * 0.02
        source.read(POWER)
        source.throttle_reasons()
    assert server.requests == 2


def test_counters_average_what_was_collected_in_the_window(
    server: Exporter, clock: Clock, source: DcgmSource
) -> None:
    """The collection that began before the window is left out, a repeated one counts once.

    Without one a window is refused, instead of repeating older values.
    """
    collect(server, clock, 8000, 0.9)
    source.start_window()
    with pytest.raises(SourceError, match=r"nothing within the window.*-c 1000"):
        source.read(COUNTERS)
    for energy_mj, sm_active in [(9000, 0.1), (10000, 0.2), (10000, 0.2), (11000, 0.4)]:
        collect(server, clock, energy_mj, sm_active)
        source.read(POWER)
    counters = source.read(COUNTERS)
    assert counters["counter.sm_active"] == pytest.approx(30)
    assert counters["counter.dram_active"] == pytest.approx(75)
    assert source.read(COUNTERS) == counters
    source.start_window()
    collect(server, clock, 12000, 0.1)
    assert source.read(COUNTERS)["counter.sm_active"] == pytest.approx(10)


def test_what_the_card_cannot_read_is_left_out_and_counted(
    server: Exporter, clock: Clock, source: DcgmSource
) -> None:
    """One number of DCGM's own ends no window and costs no other reading."""
    names = (*POWER, "counter.sm_active", "clock.sm", "energy.gpu")
    source.start_window()
    for energy, sm_active in (("9000", "NaN"), ("9e12", "-0.5"), ("10000", "0.25")):
        clock.now_s += 1
        power = {"DCGM_FI_DEV_POWER_USAGE": "3700000", SM_ACTIVE: sm_active, ENERGY: energy}
        server.text = text(CLASSIC | power)
        source.read(POWER)
    assert source.read(names) == {
        "power.gpu": None, "counter.sm_active": 25, "clock.sm": 1410, "energy.gpu": 10,
    }  # fmt: skip
    assert (
        source.gates[0].left_out
        == "6 impossible readings left out, such as energy.gpu of 9,000,000,000 J"
    )


@pytest.mark.parametrize(("hidden", "after_s"), [((), 3), ((ENERGY,), 10)])
def test_exporter_that_repeats_itself_is_too_slow(
    server: Exporter, clock: Clock, hidden: tuple[str, ...], after_s: int
) -> None:
    server.text = text({k: v for k, v in CLASSIC.items() if k not in hidden})
    with closing(DcgmSource(server.url, GPU, 1.0, clock)) as source:
        clock.now_s += after_s - 0.5
        source.read(POWER)
        clock.now_s += 1
        with pytest.raises(SourceError, match="-c 1000"):
            source.read(POWER)


def test_exporter_without_the_counters_is_refused(server: Exporter) -> None:
    server.text = text({k: v for k, v in CLASSIC.items() if k != SM_ACTIVE})
    with pytest.raises(SourceError) as caught:
        DcgmSource(server.url, GPU)
    assert f"does not collect {SM_ACTIVE}" in caught.value.what
    assert f"\n{SM_ACTIVE}, gauge, " in caught.value.fix


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("slow", "took longer than"),
        ("cut", "was cut off"),
        ("hang-up", "no answer"),
        ("html", "text/html"),
        ("500", "HTTP 500"),
        ("large", "more than"),
        ("long-line", "a line of more than"),
        ("many-lines", "characters to parse"),
        ("redirect", "redirects to '/elsewhere'"),
        ("bytes", "cannot be read|no row for"),
    ],
)
def test_faults_of_the_exporter_are_named(
    server: Exporter,
    clock: Clock,
    source: DcgmSource,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
    says: str,
) -> None:
    if fault == "slow":
        # Else a busy machine would be slow for every fault.
        monkeypatch.setattr(dcgm, "_READ_S", 0.3)
    server.fault = fault
    clock.now_s += 1
    with pytest.raises(SourceError, match=says):
        source.read(POWER)


def test_silent_exporter_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one that is gone; the message says how to name another."""
    with fake.exporter("") as gone:
        url = gone.url
    with pytest.raises(SourceError, match="ADVISOR_DCGM_URL"):
        fetch(url)
    monkeypatch.setattr(dcgm, "_READ_S", 0.2)
    silent = socket.create_server(("127.0.0.1", 0))
    with silent, pytest.raises(SourceError, match="took longer than"):
        fetch(f"http://127.0.0.1:{silent.getsockname()[1]}/metrics")
