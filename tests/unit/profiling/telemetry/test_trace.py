"""Recording and replay of telemetry."""

import json
import resource
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.gpu import Gpu
from advisor.core.records import Counters
from advisor.errors import SourceError, StoreError
from advisor_profiling.telemetry.source import GpuState
from advisor_profiling.telemetry.trace import TraceRecorder, TraceSource

GPU = Gpu(uuid="GPU-1", model="H200", units_total=132, driver="580")
STATE = GpuState(sm_clock_mhz=1410, throttle_reasons=("sw-power-cap",))


@dataclass
class Clock:
    """Seconds that a test sets."""

    now_s: float = 0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Live:
    """A source whose answers a test sets."""

    name: str = "nvml"
    interval_s: float = 0.02
    gpu: Gpu = GPU
    power: float | None = 80
    closed: bool = False
    calls: list[str] = field(default_factory=list[str])

    def power_w(self) -> float | None:
        return self.power

    def energy_j(self) -> float | None:
        return None

    def state(self) -> GpuState:
        return STATE

    def processes_memory_mib(self, pids: Collection[int]) -> float | None:
        return 12.5 * len(pids)

    def start_counters(self) -> None:
        self.calls.append("start_counters")

    def read_counters(self) -> Counters:
        return Counters(sm_active_percent=50)

    def close(self) -> None:
        self.closed = True


def test_replay_answers_as_recorded(tmp_path: Path) -> None:
    """Every kind of reading comes back with its type and value, missing ones as None."""
    live, path = Live(), tmp_path / "trace"
    recorder = TraceRecorder(live, path, Clock(5))
    recorder.start_counters()
    answers = (recorder.power_w(), recorder.energy_j(), recorder.state())
    rest = (recorder.processes_memory_mib([1, 2]), recorder.read_counters())
    recorder.close()
    replay = TraceSource(path, Clock(900))
    assert (replay.name, replay.interval_s, replay.gpu) == ("nvml", 0.02, GPU)
    replay.start_counters()
    assert (replay.power_w(), replay.energy_j(), replay.state()) == answers == (80, None, STATE)
    assert (replay.processes_memory_mib([1, 2]), replay.read_counters()) == rest
    assert live.closed
    assert live.calls == ["start_counters"]


@given(
    steps=st.lists(st.tuples(st.floats(0, 10), st.floats(0, 1000)), min_size=1, max_size=20),
    part=st.floats(0, 1),
)
def test_replay_holds_the_last_reading(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[float, float]], part: float
) -> None:
    """At any offset the answer is the newest reading that was made by then."""
    path, clock, live = tmp_path_factory.mktemp("t") / "trace", Clock(1), Live()
    recorder = TraceRecorder(live, path, clock)
    made: list[tuple[float, float]] = []
    for pause_s, power_w in [(0.0, 80.0), *steps]:
        clock.now_s += pause_s
        live.power = power_w
        recorder.power_w()
        made.append((clock.now_s - 1, power_w))
    recorder.close()
    offset_s = part * made[-1][0]
    replaying = Clock(0)
    replay = TraceSource(path, replaying)
    replay.power_w()
    replaying.now_s = offset_s
    assert replay.power_w() == [power_w for t, power_w in made if t <= offset_s][-1]


def _recorded(path: Path, change: Callable[[list[str]], None]) -> Path:
    clock = Clock()
    recorder = TraceRecorder(Live(), path, clock)
    for clock.now_s in (0.0, 1.0, 2.0):
        recorder.power_w()
    recorder.close()
    lines = path.read_text().splitlines()
    change(lines)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_trace_that_ended_is_an_error(tmp_path: Path) -> None:
    """After its last reading and one interval a trace answers nothing."""
    clock = Clock(10)
    replay = TraceSource(_recorded(tmp_path / "trace", lambda _: None), clock)
    replay.power_w()
    clock.now_s = 12.02
    assert replay.power_w() == 80
    clock.now_s = 12.03
    with pytest.raises(SourceError, match=r"ended at 2\.000 s"):
        replay.power_w()


@pytest.mark.parametrize(
    "line",
    [
        "",
        '{"t": 1, "kind": "pow',
        "[1]",
        '{"t": 1, "kind": "power_w"}',
        '{"t": 1, "kind": "power_w", "value": NaN}',
        '{"t": 1, "kind": "power_w", "value": "much"}',
        '{"t": 1, "kind": "smell", "value": 1}',
        '{"t": 0, "kind": "source", "value": {}}',
        '{"t": 0.5, "kind": "power_w", "value": 1}',
        '{"t": 1, "kind": "state", "value": {"throttle_reasons": null, "smell": 1}}',
    ],
)
def test_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    """A line that is cut, unknown, out of order or no number is refused by its number."""
    path = _recorded(tmp_path / "trace", lambda lines: lines.__setitem__(3, line))
    with pytest.raises(SourceError, match=r"line 4 of the trace .* is damaged"):
        TraceSource(path, Clock())


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b'{"t": 0, "kind": "power_w", "value": 1}'])
def test_file_that_is_no_trace_is_refused(tmp_path: Path, content: bytes) -> None:
    """An empty file, bytes, or readings without their source are refused."""
    (tmp_path / "trace").write_bytes(content)
    with pytest.raises(SourceError):
        TraceSource(tmp_path / "trace", Clock())


def test_trace_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A wrong path is a source error."""
    with pytest.raises(SourceError, match="cannot be read"):
        TraceSource(tmp_path / "trace", Clock())


def test_kind_that_was_not_recorded_is_none(tmp_path: Path) -> None:
    """A trace of power alone has no state, energy or counters."""
    replay = TraceSource(_recorded(tmp_path / "trace", lambda _: None), Clock())
    assert replay.energy_j() is None
    assert (replay.state(), replay.read_counters()) == (GpuState(), Counters())


def test_recorder_never_overwrites(tmp_path: Path) -> None:
    """A file that exists is kept and the recorder refuses to start."""
    (tmp_path / "trace").write_text("precious")
    with pytest.raises(StoreError, match="File exists"):
        TraceRecorder(Live(), tmp_path / "trace")
    assert (tmp_path / "trace").read_text() == "precious"


def test_full_disk_is_a_store_error(tmp_path: Path) -> None:
    """A recorder that cannot write says so instead of losing readings."""
    recorder = TraceRecorder(Live(), tmp_path / "trace", Clock())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "trace").stat().st_size, before[1]))
    try:
        with pytest.raises(StoreError, match="File too large"):
            recorder.power_w()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        recorder.close()


def test_each_reading_is_written_at_once(tmp_path: Path) -> None:
    """A crash loses no reading that was answered: the lines are there before close."""
    recorder = TraceRecorder(Live(), tmp_path / "trace", Clock())
    recorder.power_w()
    last = (tmp_path / "trace").read_text().splitlines()[-1]
    assert json.loads(last) == {"t": 0, "kind": "power_w", "value": 80}
    recorder.close()
