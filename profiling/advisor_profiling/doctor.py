"""What `advisor doctor` finds: everything that measuring needs of the host and of each GPU."""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib import metadata
from typing import Literal

from advisor.core.gpu import Gpu
from advisor.core.records import COUNTER_BOUND, NO_POWER, grouped
from advisor.core.telemetry import COUNTERS, ENERGY_GPU, POWER_GPU, power_scope
from advisor.core.wording import listed
from advisor.errors import DISTRIBUTION, AdvisorError, install
from advisor.runtime.backend import Control, binary_version
from advisor.runtime.processes import available_cores, cpu_steal_s
from advisor.runtime.running_job import leftovers
from advisor.settings import LIMIT_VARIABLES, Settings
from advisor.validity.safe_counts import CHECKS, check_for
from advisor.validity.sensor_record import origin_of, record_for
from advisor_data.bundled import all_checks, all_sensors
from advisor_profiling.counts import installed_libraries
from advisor_profiling.telemetry.dcgm import fetch, missing_counters
from advisor_profiling.telemetry.nvml import NvmlSource
from advisor_profiling.testbed import with_units
from advisor_profiling.window import Clock, WindowInputs, WindowRules, measure

_NO_ENERGY = "to advise on energy, profile on a card that tells its power"
_CHECK, _SENSOR = "advisor check", "advisor power sensor"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report; `fix` is empty where all is well."""

    check: str
    verdict: Literal["ok", "warning", "missing"]
    found: str
    fix: str = ""

    @classmethod
    def missing(cls, check: str, error: AdvisorError) -> "Finding":
        """Something is missing; the error says how to mend that."""
        text = error.what + (f" ({error.why})" if error.why else "")
        return cls(check, "missing", text, error.fix)


def _ok_if(good: bool, check: str, text: str, fix: str) -> Finding:
    """What was found; a warning with its `fix` where it is not good."""
    return Finding(check, "ok", text) if good else Finding(check, "warning", text, fix)


def _caught(check: str, looked: Iterable[Finding]) -> Iterator[Finding]:
    """The findings, and what is missing where looking failed."""
    try:
        yield from looked
    except AdvisorError as error:
        yield Finding.missing(check, error)


def examine(settings: Settings, gpus: Callable[[], list[Gpu]]) -> list[Finding]:
    """Look at everything that measuring needs; `gpus`, which lists them, may raise SourceError."""
    host = [*_host(settings), *_extras()]
    mps = [*_caught("mps", _mps_binary(settings))]
    try:
        gpus_here = gpus()
    except AdvisorError as error:
        return [Finding.missing("gpu", error), *host, *mps]
    if not gpus_here:
        host.append(Finding("gpu", "missing", "the driver lists no GPU", "look at `dmesg`"))
    if any(gpu.vendor == "nvidia" for gpu in gpus_here):
        host += mps
    each_gpu = (finding for gpu in gpus_here for finding in _gpu(gpu, settings))
    return [*host, *each_gpu, *_caught("mps daemon", _daemon(settings)), _exporter(settings)]


def _extras() -> Iterator[Finding]:
    """Which optional parts are installed; those that are not may never be wanted on this host.

    As the installation's metadata lists them: nothing where advisor itself was not installed.
    """
    try:
        lines = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return
    matches = (re.match(r"([\w.-]+).*;.*extra == ['\"]([\w-]+)['\"]", line) for line in lines)
    # Distributions that each lacks.
    without = {
        extra: [of[1] for of in needs if not [*metadata.distributions(name=of[1])]]
        for extra, needs in grouped(filter(None, matches), lambda of: of[2]).items()
    }
    whole = listed(extra for extra, names in without.items() if not names) or "none"
    rest = [extra for extra, names in without.items() if names]
    text = f"installed: {whole}" + (f"; not installed: {listed(rest)}" if rest else "")
    wanted = "advise" if "advise" in rest else "EXTRA"
    yield Finding("extras", "ok", text, install(wanted) if rest else "")


def _host(settings: Settings) -> Iterator[Finding]:
    """Cores, variables and store of this host."""
    cores = available_cores()
    yield _ok_if(
        len(cores) >= 5,
        "cores",
        f"{len(cores)} CPU cores",
        "give it 5 or more: one for advisor, two for each job",
    )
    speeds = core_speeds(cores)
    slowest = min(speeds, key=lambda core: speeds[core])
    part = speeds[slowest] / max(speeds.values())
    yield _ok_if(
        # A slower core is disturbed, and changes the rate of a launch-bound job by as much.
        part >= 0.85,
        "core-speed",
        f"the slowest core ({slowest}) does {100 * part:.0f} % of the fastest",
        "something else uses the host's cores: measure launch-bound jobs when it is gone",
    )
    before_s, begun_s = cpu_steal_s(), time.monotonic()
    time.sleep(0.5)
    share = (cpu_steal_s() - before_s) / (time.monotonic() - begun_s) / (os.cpu_count() or 1)
    text = f"{100 * share:.1f} % of CPU time taken by other guests"
    yield _ok_if(share < 0.01, "cpu-steal", text, "measure on a host that is not overbooked")
    names = [name for name in LIMIT_VARIABLES if name in settings.environment]
    yield _ok_if(
        not names,
        "environment",
        f"{', '.join(names)} set" if names else "no variable limits jobs from outside",
        "advisor sets them for each job itself; unset them to avoid surprises",
    )
    yield from _caught("store", _store(settings))


def _store(settings: Settings) -> Iterator[Finding]:
    """Whether points can be kept; nothing is made by looking."""
    home = folder = settings.home
    while not home.exists():
        home = home.parent
    if not os.access(home, os.W_OK):
        yield Finding("store", "missing", f"{home} is not writable", "set ADVISOR_HOME")
        return
    if settings.database_url is not None or (folder / "advisor.db").exists():
        # Loads SQLAlchemy.
        from advisor_data.store import check_database

        check_database(settings.database_url or f"sqlite:///{folder / 'advisor.db'}", folder)
    yield Finding("store", "ok", settings.database_url or str(folder))


def _mps_binary(settings: Settings) -> Iterator[Finding]:
    version = binary_version(settings.job_environment())
    yield Finding("mps", "ok", f"nvidia-cuda-mps-control, version {version}")


def _daemon(settings: Settings) -> Iterator[Finding]:
    text = "advisor starts its own, one for each GPU"
    if pipe_dir := settings.mps_pipe_dir:
        control = Control(pipe_dir, settings.job_environment())
        text = f"{pipe_dir}: default {control.default_percentage():g} %, "
        text += f"{sum(len(control.clients(s)) for s in control.servers())} clients"
    yield Finding("mps daemon", "ok", text)


def _exporter(settings: Settings) -> Finding:
    name, url = "dcgm-exporter", settings.dcgm_url
    try:
        lacks = missing_counters(fetch(url))
    except AdvisorError:
        return Finding(name, "ok", f"none at {url} (only needed for --source dcgm)")
    text = f"gives no {', '.join(lacks)}" if lacks else url
    return _ok_if(not lacks, name, text, "add them to its CSV (-f)")


def _gpu(gpu: Gpu, settings: Settings) -> Iterator[Finding]:
    """Everything that measuring needs of one GPU; nothing of it is changed."""
    name = f"gpu {gpu.index}"
    yield Finding(name, "ok", f"{gpu.model}, {gpu.uuid}, driver {gpu.driver}")
    withheld, text = power_scope(gpu.model)
    if text:
        yield _ok_if(POWER_GPU not in withheld, f"{name} power", text, _NO_ENERGY)
    if gpu.vendor != "nvidia":
        return
    mode = f"{name} mode"
    if gpu.mig:
        yield Finding(mode, "warning", "MIG is on", "advisor splits whole GPUs: turn MIG off")
    elif gpu.compute_mode == "prohibited":
        yield Finding(mode, "missing", "compute mode prohibited", "nvidia-smi -c DEFAULT (root)")
    else:
        yield Finding(mode, "ok", f"compute mode {gpu.compute_mode}, MIG off")
    for part, looked in (
        ("SMs", _sms),
        ("results", _counts),
        ("sensor", _sensor),
        ("NVML", _telemetry),
    ):
        yield from _caught(f"{name} {part}", looked(f"{name} {part}", gpu, settings))
    if left := leftovers(gpu.uuid, settings.runtime_dir):
        text = f"jobs of an earlier advisor still run: {left}"
        yield Finding(name, "warning", text, "the next `advisor profile` ends them")


def _sms(name: str, gpu: Gpu, settings: Settings) -> Iterator[Finding]:
    yield Finding(name, "ok", f"{with_units(gpu, settings).units_total} SMs")


def _counts(name: str, gpu: Gpu, settings: Settings) -> Iterator[Finding]:
    """Whether the counts at which libraries compute right results are known."""
    stored = check_for(gpu.model, CHECKS.read(settings.home))
    check = check_for(gpu.model, all_checks(settings.home))
    if check is None:
        yield Finding(name, "warning", "not checked at which SM counts they are right", _CHECK)
        return
    libraries: Mapping[str, str] = {}
    with suppress(AdvisorError):  # the interpreter of jobs may have no PyTorch
        libraries = installed_libraries("python3", settings.job_environment())
    changed = check.differs_from(gpu.driver or "", libraries)
    text = (
        f"{len(check.safe)} of {len(check.checked)} SM counts are safe, checked "
        f"{check.checked_at[:10]} {'here' if stored else 'on another card, bundled'}"
    )
    yield _ok_if(not changed, name, f"{text}; {changed}" if changed else text, f"{_CHECK} again")


def _sensor(name: str, gpu: Gpu, settings: Settings) -> Iterator[Finding]:
    """Whether it is known how the card's power is read."""
    records = all_sensors(settings.home)
    record = record_for(gpu.uuid, gpu.model, gpu.driver or "", records)
    if record is None:
        others = sorted({other.driver for other in records if other.gpu_model == gpu.model})
        but = f" (only with driver {listed(others)})" if others else ""
        yield Finding(name, "ok", f"not measured{but}: waits suit all power sensors", _SENSOR)
        return
    channels = [channel for channel in record.channels if channel.accepted]
    windows = listed(f"{c.name} {c.window_ms:.0f} ms every {c.period_ms:.0f} ms" for c in channels)
    origin = f"{origin_of(record, gpu.uuid)}, {record.measured_at[:10]}"
    text = f"{origin}: {windows or 'nothing accepted'}"
    yield _ok_if(bool(channels), name, text, f"{_SENSOR} again, on an idle GPU")


def _telemetry(_name: str, gpu: Gpu, _settings: Settings) -> Iterator[Finding]:
    """Two seconds of whatever runs: channels, energy counter against power, and counters."""
    with closing(NvmlSource(gpu.uuid)) as source:
        rules = WindowRules(least_s=2, most_s=2, settle_most_s=0)
        window = measure(WindowInputs(counts=(), source=source, clock=Clock()), rules)
        shown = [
            f"{c.name} ({c.kind}, {c.unit})" for c in source.channels if c.name not in COUNTERS
        ]
        yield Finding(f"gpu {gpu.index} telemetry", "ok", ", ".join(shown))
        for said in (gate.left_out for gate in source.gates if gate.left_out):
            yield Finding(f"gpu {gpu.index} readings", "warning", said, "look at `dmesg`")
    name, gap = f"gpu {gpu.index} energy", window.counter_gap
    if window.power is None:
        yield Finding(f"gpu {gpu.index} power", "warning", NO_POWER, _NO_ENERGY)
    elif window.counter_power_w is None or gap is None:
        if ENERGY_GPU not in power_scope(gpu.model)[0]:
            yield Finding(name, "warning", "no energy counter", "power is not cross-checked")
    else:
        both = f"counter {window.counter_power_w:.1f} W, instant power {window.power.mean:.1f} W"
        fix = "repeat on an idle GPU; if it stays, ask which of the two is of the GPU alone"
        yield _ok_if(abs(gap) <= COUNTER_BOUND, name, f"{both}, {100 * gap:+.1f} %", fix)
    name = f"gpu {gpu.index} counters"
    if window.counters.sm_active_percent is not None:
        yield Finding(name, "ok", "SM, memory and PCIe counters (NVML GPM)")
        return
    yield Finding(
        name,
        "warning",
        "NVML gives no counters (GPM needs Hopper or newer, and the permission)",
        "run dcgm-exporter and use --source dcgm",
    )


_ROUNDS = 2000


def core_speeds(
    cores: Iterable[int], seconds: float = 0.02, clock: Callable[[], float] = time.perf_counter
) -> dict[int, float]:
    """Rounds of a fixed loop per second on each core, one after the other, for `seconds` each.

    The calling thread is moved from core to core, and back to all of its cores at the end.
    """
    before = os.sched_getaffinity(0)
    try:
        speeds = dict[int, float]()
        for core in cores:
            os.sched_setaffinity(0, {core})
            begun, rounds = clock(), 0
            while (passed := clock() - begun) < seconds:
                for _ in range(_ROUNDS):
                    pass
                rounds += _ROUNDS
            speeds[core] = rounds / passed
        return speeds
    finally:
        os.sched_setaffinity(0, before)
