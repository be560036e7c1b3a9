"""One line of what `advisor doctor` reports."""

import importlib.util
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from typing import Literal

from advisor.core.flags import COUNTER_BOUND
from advisor.core.gpu import Gpu
from advisor.core.telemetry import COUNTERS, Channel
from advisor.core.wording import listed
from advisor.errors import AdvisorError
from advisor.installed import DISTRIBUTION, install
from advisor.runtime.backends.mps_control import Control, binary_version
from advisor.runtime.host.cores import available_cores
from advisor.runtime.host.processes import cpu_steal_s
from advisor.runtime.jobs.launcher import leftovers
from advisor.settings import LIMIT_VARIABLES, Settings
from advisor.validity.checks import CHECKS, check_for
from advisor.validity.sensor_record import origin_of, record_for
from advisor_data.files.checked import known_checks
from advisor_data.files.power_records import known_sensors
from advisor_profiling.counts import installed_libraries, library_script
from advisor_profiling.telemetry.dcgm import fetch, missing_counters
from advisor_profiling.telemetry.nvml import NvmlSource
from advisor_profiling.testbed.live import with_units
from advisor_profiling.window.clock import Clock
from advisor_profiling.window.window import MeasuredWindow, WindowInputs, WindowRules, measure

FindingLevel = Literal["ok", "warning", "missing"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report; `fix` is empty where all is well."""

    check: str
    verdict: FindingLevel
    found: str
    fix: str = ""


def ok_if(good: bool, check: str, found: str, fix: str) -> Finding:
    """What was found; a warning with its `fix` where it is not good."""
    return Finding(check, "ok", found) if good else Finding(check, "warning", found, fix)


def missing(check: str, error: AdvisorError) -> Finding:
    """Something is missing, and says itself how to mend that."""
    found = error.what + (f" ({error.why})" if error.why else "")
    return Finding(check, "missing", found, error.fix)


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
        watch = WindowInputs(counts=(), source=source, clock=Clock())
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


LEAST_CORE_SPEED = 0.85
"""A core that does less than this part of the fastest is disturbed; what a launch-bound job does
would change by as much."""


def examine(settings: Settings, gpus: Callable[[], list[Gpu]]) -> list[Finding]:
    """Look at everything that measuring needs; `gpus`, which lists them, may raise SourceError."""
    findings = [_cores(), _core_speed(), _steal(), _variables(settings), _store(settings)]
    findings += examine_extras(lacking())
    try:
        found = gpus()
    except AdvisorError as error:
        return [missing("gpu", error), *findings, *_mps_binary(settings)]
    if not found:
        findings.append(Finding("gpu", "missing", "the driver lists no GPU", "look at `dmesg`"))
    if any(gpu.vendor == "nvidia" for gpu in found):
        findings += _mps_binary(settings)
    for gpu in found:
        findings += examine_gpu(gpu, settings)
    return [*findings, _daemon(settings), _exporter(settings)]


def examine_extras(without: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Which optional parts are installed; those that are not may never be wanted on this host."""
    if not without:
        return []
    whole = listed(extra for extra, names in without.items() if not names) or "none"
    rest = [extra for extra, names in without.items() if names]
    found = f"installed: {whole}" + (f"; not installed: {listed(rest)}" if rest else "")
    wanted = "advise" if "advise" in rest else "EXTRA"
    return [Finding("extras", "ok", found, install(wanted) if rest else "")]


def _cores() -> Finding:
    cores = available_cores()
    fix = "give it 5 or more: one for advisor, two for each job"
    return ok_if(len(cores) >= 5, "cores", f"{len(cores)} CPU cores", fix)


def _core_speed() -> Finding:
    speeds = core_speeds(available_cores())
    slowest = min(speeds, key=lambda core: speeds[core])
    part = speeds[slowest] / max(speeds.values())
    text = f"the slowest core ({slowest}) does {100 * part:.0f} % of the fastest"
    fix = "something else uses the host's cores: measure launch-bound jobs when it is gone"
    return ok_if(part >= LEAST_CORE_SPEED, "core-speed", text, fix)


def _steal() -> Finding:
    before_s, begun_s = cpu_steal_s(), time.monotonic()
    time.sleep(0.5)
    share = (cpu_steal_s() - before_s) / (time.monotonic() - begun_s) / (os.cpu_count() or 1)
    text = f"{100 * share:.1f} % of CPU time taken by other guests"
    return ok_if(share < 0.01, "cpu-steal", text, "measure on a host that is not overbooked")


def _variables(settings: Settings) -> Finding:
    found = [name for name in LIMIT_VARIABLES if name in settings.environment]
    text = f"{', '.join(found)} set" if found else "no variable limits jobs from outside"
    fix = "advisor sets them for each job itself; unset them to avoid surprises"
    return ok_if(not found, "environment", text, fix)


def _store(settings: Settings) -> Finding:
    where = settings.database_url or str(settings.home)
    if importlib.util.find_spec("sqlalchemy") is None:
        return Finding("store", "ok", f"JSON-lines files in {settings.home}/points (no SQLAlchemy)")
    home = settings.home
    while not home.exists():
        home = home.parent
    if not os.access(home, os.W_OK):
        return Finding("store", "missing", f"{home} is not writable", "set ADVISOR_HOME")
    return _pages(settings) or Finding("store", "ok", where)


def _pages(settings: Settings) -> Finding | None:
    """What is wrong with the database that is there; nothing is made by looking."""
    own = settings.home / "advisor.db"
    if settings.database_url is None and not own.exists():
        return None
    # Loads SQLAlchemy.
    from advisor_data.service.backup import check_database

    try:
        check_database(settings.database_url or f"sqlite:///{own}", settings.home)
    except AdvisorError as error:
        return missing("store", error)
    return None


def _mps_binary(settings: Settings) -> list[Finding]:
    try:
        version = binary_version(settings.job_environment())
    except AdvisorError as error:
        return [missing("mps", error)]
    return [Finding("mps", "ok", f"nvidia-cuda-mps-control, version {version}")]


def _daemon(settings: Settings) -> Finding:
    pipe_dir = settings.mps_pipe_dir
    if pipe_dir is None:
        return Finding("mps daemon", "ok", "advisor starts its own, one for each GPU")
    try:
        control = Control(pipe_dir, settings.job_environment())
        return Finding(
            "mps daemon", "ok", f"{pipe_dir}: default {control.default_percentage():g} %, "
            f"{sum(len(control.clients(s)) for s in control.servers())} clients",
        )  # fmt: skip
    except AdvisorError as error:
        return missing("mps daemon", error)


def _exporter(settings: Settings) -> Finding:
    name, url = "dcgm-exporter", settings.dcgm_url
    try:
        lacks = missing_counters(fetch(url))
    except AdvisorError:
        return Finding(name, "ok", f"none at {url} (only needed for --source dcgm)")
    found = f"gives no {', '.join(lacks)}" if lacks else url
    return ok_if(not lacks, name, found, "add them to its CSV (-f)")


_REQUIREMENT = re.compile(r"([\w.-]+).*;.*extra == ['\"]([\w-]+)['\"]")


def lacking() -> Mapping[str, tuple[str, ...]]:
    """Distributions that each extra lacks, by extra, as the installation's metadata lists them.

    Returns:
        Nothing where advisor itself was not installed.
    """
    try:
        lines = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return {}
    needs: dict[str, list[str]] = {}
    for found in filter(None, map(_REQUIREMENT.match, lines)):
        needs.setdefault(found[2], []).append(found[1])
    return {extra: tuple(n for n in names if not _is_here(n)) for extra, names in needs.items()}


def _is_here(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


_ROUNDS = 2000


def core_speeds(
    cores: Iterable[int], seconds: float = 0.02, clock: Callable[[], float] = time.perf_counter
) -> dict[int, float]:
    """Rounds of a fixed loop per second on each core, one after the other, for `seconds` each.

    The calling thread is moved from core to core, and back to all of its cores at the end.
    """
    before = os.sched_getaffinity(0)
    try:
        return {core: _speed(core, seconds, clock) for core in cores}
    finally:
        os.sched_setaffinity(0, before)


def _speed(core: int, seconds: float, clock: Callable[[], float]) -> float:
    os.sched_setaffinity(0, {core})
    begun, rounds = clock(), 0
    while (passed := clock() - begun) < seconds:
        for _ in range(_ROUNDS):
            pass
        rounds += _ROUNDS
    return rounds / passed
