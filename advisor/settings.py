"""The only reader of the environment, and of the file with what it does not set."""

import difflib
import math
import os
import pwd
import stat
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from advisor.core.gpu import PERCENTAGE, PRIORITY
from advisor.core.objectives import POLICY, Objective, Policy, Prices
from advisor.errors import InputError, UnsafeFileError
from advisor.files import belongs_to_us, open_file, state_of

LAUNCH_DAYS, LAUNCH_GIB = "ADVISOR_KEEP_LAUNCHES_DAYS", "ADVISOR_KEEP_LAUNCHES_GIB"
AUDIT_DAYS, OUTPUT_MIB = "ADVISOR_KEEP_AUDIT_DAYS", "ADVISOR_OUTPUT_MIB"

_DEFAULTS = {LAUNCH_DAYS: 90.0, LAUNCH_GIB: 20.0, AUDIT_DAYS: 365.0, OUTPUT_MIB: 64.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Bounds; infinite where there is none.

    Attributes:
        launch_days: `ADVISOR_KEEP_LAUNCHES_DAYS`: folders of launches that ended longer ago are
            removed; 0: never.
        launch_gib: `ADVISOR_KEEP_LAUNCHES_GIB`: where the folders of launches that have ended take
            more, the oldest are removed; 0: never.
        audit_days: `ADVISOR_KEEP_AUDIT_DAYS`: older entries of the audit log are removed; 0: never.
        output_mib: `ADVISOR_OUTPUT_MIB`: the newest output that is kept of each job.
    """

    launch_days: float
    launch_gib: float
    audit_days: float
    output_mib: float


def output_bytes(environment: Mapping[str, str]) -> int:
    """What each of the two files of a job's output may take (advisor/runtime/shim.py).

    Raises:
        InputError: the environment has no such size.
    """
    return int(_bound(environment, OUTPUT_MIB) * 2**20 / 2)


def _bound(environment: Mapping[str, str], name: str) -> float:
    # Of less, a job that is counted by its output might have written over what was not read yet.
    given, least = environment.get(name), 2.0 if name == OUTPUT_MIB else 0.0
    try:
        number = float(given) if given else _DEFAULTS[name]
    except ValueError:
        number = -1.0
    if not least <= number < math.inf:
        raise InputError(
            f"{name} is {given}",
            why=f"it is a size in MiB, {least:g} or more"
            if least
            else "it is 0 (no bound) or a number above it",
            fix=f"set it to such a number, or unset it: {_DEFAULTS[name]:g}",
        )
    return number


OUR_VARIABLES = "ADVISOR_"
"""How the names of all our variables begin; jobs get theirs from us alone."""

RUNTIME_DIR = "ADVISOR_RUNTIME_DIR"

HOST_FOLDER = Path("/run/advisor")
"""For a group of users of the host, where root has made it (deploy/advisor.tmpfiles.conf)."""

SECRETS = ("ADVISOR_DATABASE_URL", "ADVISOR_TOKEN", "ADVISOR_PROMETHEUS_TOKEN", "PGPASSWORD")
"""Variables that no job and no daemon gets to see."""

_INSTALLED = Path(__file__).parent / "suite"

SUITE = _INSTALLED if (_INSTALLED / "jobs").is_dir() else _INSTALLED.parents[1]
"""Folder of the jobs that come with advisor and of their programs; of a checkout its root."""

LIMIT_VARIABLES = (
    PERCENTAGE,
    PRIORITY,
    "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_SM_PARTITION",
    "CUDA_VISIBLE_DEVICES",
    "HSA_CU_MASK",
    "HSA_CU_MASK_SKIP_INIT",
    "ROC_GLOBAL_CU_MASK",
    "ROCR_VISIBLE_DEVICES",
)
"""Variables that set or lift a limit or a priority; a job gets them from its back-end and nothing
else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the environment and the file of the user say.

    Attributes:
        home: Where points are kept: `ADVISOR_HOME`, else `$XDG_DATA_HOME/advisor`.
        runtime_dir: Sockets and logs of running jobs: `ADVISOR_RUNTIME_DIR`, else
            `$XDG_RUNTIME_DIR/advisor` where that is ours, else `/run/advisor/<uid>` where root has
            made `/run/advisor` for us, else `/tmp/advisor-<uid>`. Socket paths must stay short.
        lock_dir: Locks of GPUs: `ADVISOR_LOCK_DIR`, else `/run/advisor/locks` where root has made
            it for us, else `/tmp/advisor-<uid>/locks`, which is the same for all sessions of a
            user; if another user was there first, `locks` in `runtime_dir`.
        jobs_dir: `ADVISOR_JOBS`, else `./jobs`. A relative one is that of the current folder, which
            may be another user's.
        database_url: `ADVISOR_DATABASE_URL`; None: SQLite in `home`.
        mps_pipe_dir: `CUDA_MPS_PIPE_DIRECTORY`: a daemon that is already there; None: our own.
        dcgm_url: `ADVISOR_DCGM_URL`, address of a dcgm-exporter.
        policy: `ADVISOR_OBJECTIVE`, `ADVISOR_MIN_SPEED`, `ADVISOR_P99_TIMES_ALONE`,
            `ADVISOR_MIN_GAIN`, `ADVISOR_CHANCE`, and of prices `ADVISOR_GPU_HOUR`, `ADVISOR_KWH`
            and `ADVISOR_HOST_W`; prices are 0 where they are not set.
        environment: All variables, as the base of a job's own.
    """

    home: Path
    runtime_dir: Path
    lock_dir: Path
    jobs_dir: Path
    database_url: str | None
    mps_pipe_dir: Path | None
    dcgm_url: str
    policy: Policy
    retention: Retention
    environment: Mapping[str, str]

    def job_environment(self) -> dict[str, str]:
        """The environment without secrets and without the variables that set or lift a limit."""
        # A job that speaks to systemd would speak for the service.
        left_out = (*LIMIT_VARIABLES, *SECRETS, "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC")
        kept = {k: v for k, v in self.environment.items() if k not in left_out}
        return kept | {RUNTIME_DIR: str(self.runtime_dir)}

    def secrets(self) -> dict[str, str]:
        """The secrets of the environment."""
        return {k: v for k, v in self.environment.items() if k in SECRETS}


KEYS: Mapping[str, Callable[[Settings], object]] = {
    "home": lambda s: s.home,
    "runtime_dir": lambda s: s.runtime_dir,
    "lock_dir": lambda s: s.lock_dir,
    "jobs": lambda s: s.jobs_dir,
    "database_url": lambda s: s.database_url and "set, and not shown",
    "dcgm_url": lambda s: s.dcgm_url,
    "objective": lambda s: s.policy.deciding,
    "min_speed": lambda s: s.policy.min_speed,
    "p99_times_alone": lambda s: s.policy.p99_times_alone,
    "min_gain": lambda s: s.policy.min_gain,
    "chance": lambda s: s.policy.chance,
    "gpu_hour": lambda s: s.policy.prices.gpu_hour,
    "kwh": lambda s: s.policy.prices.kwh,
    "host_w": lambda s: s.policy.prices.host_w,
    "keep_launches_days": lambda s: s.retention.launch_days,
    "keep_launches_gib": lambda s: s.retention.launch_gib,
    "keep_audit_days": lambda s: s.retention.audit_days,
    "output_mib": lambda s: s.retention.output_mib,
}
"""Names that a file may set: those of the variables, in small letters and without `ADVISOR_`."""


def read_settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """Settings from `environment`, and for what that leaves open from the file of the user.

    Raises:
        InputError: one cannot be meant; the file cannot be read, or has a key that is unknown.
        UnsafeFileError: the file may be another user's.
    """
    kept = written(environment)
    given = {name: value for name, value in environment.items() if value or name not in kept}
    try:
        return _read({**kept, **given})
    except InputError as error:
        if not (named := [name for name in kept.keys() - given.keys() if name in error.what]):
            raise
        name = named[0].removeprefix(OUR_VARIABLES).lower()
        raise InputError(
            error.what.replace(named[0], f"{name} in {config_path(environment)}"),
            why=error.why,
            fix=error.fix,
        ) from error


def written(environment: Mapping[str, str]) -> dict[str, str]:
    """What the file of the user sets, by the names of variables."""
    path = config_path(environment)
    values = _read_config(path) if path else {}
    return {variable_of(name): value for name, value in values.items()}


def variable_of(name: str) -> str:
    """The variable that sets what has this name in the file."""
    return OUR_VARIABLES + name.upper()


def _read(environment: Mapping[str, str]) -> Settings:
    pipe_dir = environment.get("CUDA_MPS_PIPE_DIRECTORY")
    jobs, runtime_dir = environment.get("ADVISOR_JOBS"), _runtime_dir(environment).absolute()
    return Settings(
        home=_home(environment).absolute(),
        runtime_dir=runtime_dir,
        lock_dir=_lock_dir(environment, runtime_dir).absolute(),
        jobs_dir=Path(jobs).absolute() if jobs else Path("jobs"),
        database_url=environment.get("ADVISOR_DATABASE_URL") or None,
        mps_pipe_dir=Path(pipe_dir).absolute() if pipe_dir else None,
        dcgm_url=environment.get("ADVISOR_DCGM_URL") or "http://127.0.0.1:9400/metrics",
        policy=_read_policy(environment),
        retention=Retention(
            launch_days=_bound(environment, LAUNCH_DAYS) or math.inf,
            launch_gib=_bound(environment, LAUNCH_GIB) or math.inf,
            audit_days=_bound(environment, AUDIT_DAYS) or math.inf,
            output_mib=_bound(environment, OUTPUT_MIB),
        ),
        environment=dict(environment),
    )


def job_folders(jobs_dir: Path) -> tuple[Path, ...]:
    """Where the file of a job is looked for; the first folder that has it counts.

    A configured folder is the only one: it decides what a service starts.
    """
    return (jobs_dir,) if jobs_dir.is_absolute() else (jobs_dir, SUITE / "jobs")


def workload_path(file_name: str) -> Path:
    """A program that comes with advisor and runs on a GPU."""
    return SUITE / "profiling/workloads" / file_name


def python() -> str:
    """The interpreter that runs our own small programs next to a job."""
    return sys.executable


def _home(environment: Mapping[str, str]) -> Path:
    if given := environment.get("ADVISOR_HOME"):
        return Path(given)
    if data_home := environment.get("XDG_DATA_HOME"):
        return Path(data_home) / "advisor"
    if not (user_home := environment.get("HOME")):  # unset or empty, as cron and containers may
        with InputError.instead_of(
            KeyError,
            "there is no folder for measurements",
            why=f"HOME is not set, and user {os.getuid()} of this host has none",
            fix="set ADVISOR_HOME to a folder",
        ):
            user_home = pwd.getpwuid(os.getuid()).pw_dir
    return Path(user_home) / ".local/share/advisor"


def _read_policy(environment: Mapping[str, str]) -> Policy:
    numbers = {
        name: _number(f"ADVISOR_{name.upper()}", environment, getattr(POLICY, name))
        for name in ("min_speed", "p99_times_alone", "min_gain", "chance")
    }
    prices = {
        name: _number(f"ADVISOR_{name.upper()}", environment, 0.0)
        for name in ("gpu_hour", "kwh", "host_w")
    }
    if objective := environment.get("ADVISOR_OBJECTIVE") or None:
        try:
            Objective.find(objective)
        except InputError as error:
            raise InputError(f"ADVISOR_OBJECTIVE is {objective}", fix=error.fix) from error
    try:
        return Policy(objective=objective, prices=Prices(**prices), **numbers)
    except InputError as error:
        name, _, fault = error.what.partition(" ")
        raise InputError(f"ADVISOR_{name.upper()} {fault}", why=error.why, fix=error.fix) from error


def _number(name: str, environment: Mapping[str, str], default: float) -> float:
    given = environment.get(name)
    with InputError.instead_of(
        ValueError,
        f"{name} is {given}",
        why="",
        fix="set it to a number such as 2.50, or unset it",
    ):
        return float(given) if given else default


def _runtime_dir(environment: Mapping[str, str]) -> Path:
    if given := environment.get(RUNTIME_DIR):
        return Path(given)
    # After `su` or `sudo -E` it may be another user's.
    per_user = environment.get("XDG_RUNTIME_DIR")
    if per_user and belongs_to_us(Path(per_user)):
        return Path(per_user) / "advisor"
    return HOST_FOLDER / str(os.getuid()) if _is_for_us(HOST_FOLDER) else _last_resort()


def _lock_dir(environment: Mapping[str, str], runtime_dir: Path) -> Path:
    if given := environment.get("ADVISOR_LOCK_DIR"):
        return Path(given)
    if _is_for_us(HOST_FOLDER / "locks"):
        return HOST_FOLDER / "locks"
    same_for_all_sessions = _last_resort()
    taken = same_for_all_sessions.exists() and not belongs_to_us(same_for_all_sessions)
    return (runtime_dir if taken else same_for_all_sessions) / "locks"


def _last_resort() -> Path:
    return Path(f"/tmp/advisor-{os.getuid()}")


def _is_for_us(folder: Path) -> bool:
    """Whether root has made a folder in which we may make something."""
    state = state_of(folder)
    return state is not None and state.st_uid == 0 and os.access(folder, os.W_OK | os.X_OK)


def config_path(environment: Mapping[str, str]) -> Path | None:
    """Where the file is, or would be; None: the environment names no folder for it."""
    home = environment.get("HOME")
    config = environment.get("XDG_CONFIG_HOME") or (home and f"{home}/.config")
    return Path(config) / "advisor/config.toml" if config else None


def _read_config(path: Path) -> dict[str, str]:
    """The values of a file, as text, none where it is not there; a key that is unknown is refused.

    Raises:
        UnsafeFileError: another user may have written it, or may read a secret in it.
        InputError: it cannot be read, or says what cannot be meant.
    """
    unread = f"{path} cannot be read"
    with (
        InputError.instead_of((OSError, ValueError), unread),
        InputError.instead_of(RecursionError, unread, why="brackets in brackets without end"),
    ):
        try:
            # What a link of a collection of dotfiles points to is looked at, as everything is.
            descriptor = open_file(path.resolve(), os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        with os.fdopen(descriptor, "rb") as file:
            state = os.fstat(file.fileno())
            # Fourteen settings take a thousandth of it.
            values = tomllib.loads(file.read(65_536).decode())
    if state.st_uid not in (0, os.geteuid()) or state.st_mode & stat.S_IWOTH:
        raise _unsafe(path, state, "write to it, and it decides what runs as you", "0644")
    if state.st_mode & 0o077 and (
        kept := [key for key in values if key in KEYS and variable_of(key) in SECRETS]
    ):
        raise _unsafe(path, state, f"read its {kept[0]}", "0600")
    for key, value in values.items():
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, 1) or [", ".join(KEYS)]
            raise InputError(f"{path} has no setting {key}", fix=f"write {near[0]}")
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise InputError(
                f"{key} in {path} is {value}", fix="write a number, or a text in quotes"
            )
    return {key: str(value) for key, value in values.items()}


def _unsafe(path: Path, state: os.stat_result, may: str, mode: str) -> UnsafeFileError:
    return UnsafeFileError(
        f"{path} is not taken",
        why=f"it belongs to user {state.st_uid} and has mode {stat.S_IMODE(state.st_mode):04o}, so "
        f"others may {may}",
        fix=f"look at it, then: chown {os.geteuid()} {path} && chmod {mode} {path}",
    )
