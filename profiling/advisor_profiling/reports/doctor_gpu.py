"""What `advisor doctor` looks at of one GPU: mode, SMs, results, sensor and telemetry."""

from collections.abc import Iterable
from contextlib import suppress

from advisor.core.gpu import Gpu
from advisor.core.records import COUNTER_BOUND
from advisor.core.telemetry import COUNTERS, Channel
from advisor.core.wording import listed
from advisor.errors import AdvisorError
from advisor.runtime.running_job import leftovers
from advisor.settings import Settings
from advisor.validity.safe_counts import CHECKS, check_for
from advisor.validity.sensor_record import origin_of, record_for
from advisor_data.known import known_checks, known_sensors
from advisor_profiling.counts.script import installed_libraries, library_script
from advisor_profiling.reports.finding import Finding, missing, ok_if
from advisor_profiling.telemetry.nvml import NvmlSource
from advisor_profiling.testbed.live import with_units
from advisor_profiling.window.clock import LiveClock
from advisor_profiling.window.rules import WindowRules
from advisor_profiling.window.window import MeasuredWindow, WindowInputs, measure

_CHECK, _SENSOR = "advisor check", "advisor power sensor"


def examine_gpu(gpu: Gpu, settings: Settings) -> Iterable[Finding]:
    """Everything that measuring needs of one GPU; nothing of it is changed."""
    name = f"gpu {gpu.index}"
    yield Finding(name, "ok", f"{gpu.model}, {gpu.uuid}, driver {gpu.driver}")
    if gpu.vendor != "nvidia":
        return
    yield _compute_mode(gpu)
    yield _sms(gpu, settings)
    yield _counts(gpu, settings)
    yield _sensor(gpu, settings)
    yield from _telemetry(gpu)
    if left := leftovers(gpu.uuid, settings.runtime_dir):
        yield Finding(
            name, "warning", f"jobs of an earlier advisor still run: {left}",
            "the next `advisor profile` ends them",
        )  # fmt: skip


def _compute_mode(gpu: Gpu) -> Finding:
    name = f"gpu {gpu.index} mode"
    if gpu.mig:
        return Finding(name, "warning", "MIG is on", "advisor splits whole GPUs: turn MIG off")
    if gpu.compute_mode == "prohibited":
        return Finding(name, "missing", "compute mode prohibited", "nvidia-smi -c DEFAULT (root)")
    return Finding(name, "ok", f"compute mode {gpu.compute_mode}, MIG off")


def _sms(gpu: Gpu, settings: Settings) -> Finding:
    try:
        units = with_units(gpu, settings).units_total
        return Finding(f"gpu {gpu.index} SMs", "ok", f"{units} SMs")
    except AdvisorError as error:
        return missing(f"gpu {gpu.index} SMs", error)


def _counts(gpu: Gpu, settings: Settings) -> Finding:
    """Whether the counts at which libraries compute right results are known."""
    name = f"gpu {gpu.index} results"
    try:
        stored = check_for(gpu.model, CHECKS.read(settings.home))
        known = check_for(gpu.model, known_checks(settings.home))
    except AdvisorError as error:
        return missing(name, error)
    if known is None:
        return Finding(name, "warning", "not checked at which SM counts they are right", _CHECK)
    where = "here" if stored else "on another card, bundled"
    text = (
        f"{len(known.safe)} of {len(known.checked)} SM counts are safe, checked "
        f"{known.checked_at[:10]} {where}"
    )
    changed = known.differs_from(gpu.driver or "", _libraries(settings))
    return ok_if(not changed, name, f"{text}; {changed}" if changed else text, f"{_CHECK} again")


def _sensor(gpu: Gpu, settings: Settings) -> Finding:
    """Whether it is known how the card's power is read."""
    name = f"gpu {gpu.index} sensor"
    try:
        records = known_sensors(settings.home)
    except AdvisorError as error:
        return missing(name, error)
    record = record_for(gpu.uuid, gpu.model, gpu.driver or "", records)
    if record is None:
        others = sorted({other.driver for other in records if other.gpu_model == gpu.model})
        but = f" (only with driver {listed(others)})" if others else ""
        return Finding(name, "ok", f"not measured{but}: waits suit all power sensors", _SENSOR)
    origin = origin_of(record, gpu.uuid)
    known = [channel for channel in record.channels if channel.accepted]
    windows = listed(f"{c.name} {c.window_ms:.0f} ms every {c.period_ms:.0f} ms" for c in known)
    text = f"{origin}, {record.measured_at[:10]}: {windows or 'nothing accepted'}"
    return ok_if(bool(known), name, text, f"{_SENSOR} again, on an idle GPU")


def _libraries(settings: Settings) -> dict[str, str]:
    """Versions that jobs load by default; none where their interpreter has no PyTorch."""
    with suppress(AdvisorError):
        return installed_libraries(library_script("python3"), settings.job_environment())
    return {}


def _telemetry(gpu: Gpu) -> Iterable[Finding]:
    try:
        source = NvmlSource(gpu.uuid)
    except AdvisorError as error:
        yield missing(f"gpu {gpu.index} NVML", error)
        return
    try:
        # Nobody counts steps here: two seconds of whatever runs, without waiting for it to settle.
        watch = WindowInputs(counts=(), source=source, clock=LiveClock())
        window = measure(watch, WindowRules(least_s=2, most_s=2, settle_most_s=0))
        yield _channels(gpu, source.channels)
        yield _energy(gpu, window)
        yield _counters(gpu, window)
    except AdvisorError as error:
        yield missing(f"gpu {gpu.index} NVML", error)
    finally:
        source.close()


def _channels(gpu: Gpu, channels: Iterable[Channel]) -> Finding:
    """What is read of the GPU; counters have a line of their own."""
    shown = [f"{c.name} ({c.kind}, {c.unit})" for c in channels if c.name not in COUNTERS]
    return Finding(f"gpu {gpu.index} telemetry", "ok", ", ".join(shown))


def _energy(gpu: Gpu, window: MeasuredWindow) -> Finding:
    name, gap = f"gpu {gpu.index} energy", window.counter_gap
    if window.power is None or window.counter_power_w is None or gap is None:
        return Finding(name, "warning", "no energy counter", "power is not cross-checked")
    text = (
        f"counter {window.counter_power_w:.1f} W, instant power {window.power.mean:.1f} W, "
        f"{100 * gap:+.1f} %"
    )
    fix = "repeat on an idle GPU; trust the counter, if it stays"
    return ok_if(abs(gap) <= COUNTER_BOUND, name, text, fix)


def _counters(gpu: Gpu, window: MeasuredWindow) -> Finding:
    name = f"gpu {gpu.index} counters"
    if window.counters.sm_active_percent is not None:
        return Finding(name, "ok", "SM, memory and PCIe counters (NVML GPM)")
    return Finding(
        name,
        "warning",
        "NVML gives no counters (GPM needs Hopper or newer, and the permission)",
        "run dcgm-exporter and use --source dcgm",
    )
