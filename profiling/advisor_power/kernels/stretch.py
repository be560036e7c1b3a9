"""What slow sensors say of an operation that runs without a gap: the memory's power, counters."""

from advisor.validity.sensor_record import AVERAGE_SETTLE_S, SensorRecord
from advisor.wire.power import Estimate, StretchPower
from advisor_power.kernels.estimates import mean_of
from advisor_power.kernels.trace import GaplessRun
from advisor_profiling.window.window import FEWEST_READINGS

STRETCH_S = 2.0
"""After the memory's sensor has settled: eight readings, at four a second."""


def stretch_power(stretch: GaplessRun, record: SensorRecord) -> StretchPower:
    """Power of the whole GPU and of its memory, once the sensor of that has settled."""
    begin_s = stretch.begin_s + memory_settle_s(record)
    power = [r.power_w for r in stretch.readings if begin_s <= r.at_s <= stretch.end_s]
    power_w = mean_of(power) if power and not stretch.dropped else None
    memory_w = _memory_w(stretch, begin_s, power_w)
    return StretchPower(
        power_w=power_w,
        memory_power_w=None if isinstance(memory_w, str) else memory_w,
        no_memory_power=memory_w if isinstance(memory_w, str) else "",
        execution_ms=stretch.execution_s * 1000,
        seconds=stretch.end_s - stretch.begin_s,
        tensor_active_percent=stretch.counters.tensor_active_percent,
        dram_active_percent=stretch.counters.dram_active_percent,
        power_capped=stretch.power_capped,
    )


def memory_settle_s(record: SensorRecord) -> float:
    """After the beginning of a load the memory's reading is of that load alone."""
    channel = record.channel("memory")
    known_s = channel.settle_s if channel is not None and channel.accepted else 0.0
    return max(known_s, AVERAGE_SETTLE_S)


def _memory_w(stretch: GaplessRun, begin_s: float, power_w: Estimate | None) -> Estimate | str:
    """Its mean, or why there is none.

    Bounds are its lowest and highest reading: their windows overlap, so that there is no error.
    """
    if power_w is None:
        return stretch.dropped or "the instant power of the GPU did not change in the stretch"
    if not stretch.memory:
        return "this card does not read the power of its memory"
    inside = [r.power_w for r in stretch.memory if begin_s <= r.at_s <= stretch.end_s]
    if not all(0 < r.power_w < power_w.value for r in stretch.memory):
        return "the power of the memory reads 0, or more than that of the whole GPU"
    if len(inside) < FEWEST_READINGS:
        return f"the power of the memory changed only {len(inside)} times: it is stuck"
    return Estimate(sum(inside) / len(inside), min(inside), max(inside))
