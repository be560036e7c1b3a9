"""What `advisor doctor` looks at: the host here, and each GPU in `doctor_gpu`."""

import importlib.util
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata

from advisor.core.gpu import Gpu
from advisor.core.wording import listed
from advisor.errors import AdvisorError
from advisor.installed import DISTRIBUTION, install
from advisor.runtime.mps import Control, binary_version
from advisor.runtime.processes import available_cores, cpu_steal_s
from advisor.settings import LIMIT_VARIABLES, Settings
from advisor_profiling.reports.doctor_gpu import examine_gpu
from advisor_profiling.reports.finding import Finding, missing, ok_if
from advisor_profiling.telemetry.dcgm import fetch
from advisor_profiling.telemetry.dcgm_text import missing_counters

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
    from advisor_data.backup import check_database

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
