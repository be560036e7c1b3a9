"""Processes of this host, as /proc shows them: trees, CPU time, cores, loaded libraries.

This process lets others hear that it turns, also while it waits for something. A wait with a
time limit beats meanwhile, so listeners can tell an intended wait of any length from a process that
hangs or was stopped. Only the main thread beats: listeners are not thread-safe, and a worker thread
says nothing about the main loop.

Launch-bound jobs lose up to half their rate when something else runs on their cores, so the
profiler keeps one core, and the jobs share the others evenly. A job that is measured alone gets
the same number of cores as beside others: otherwise the two rates could not be compared.

A job may run in any environment, so nothing is asked of an interpreter. A file installed by the
system has its version in its name (`libcublas.so.13.1.0.3`); one from a wheel has it in the name of
the wheel's metadata (`nvidia_cublas-13.1.0.3.dist-info`). Written as `advisor check` writes them.
"""

import os
import re
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread, current_thread, main_thread
from typing import Any, Protocol, TypeVar

from advisor.core.gpu import HOLDERS
from advisor.files import read_whole

_EVERY_S = 0.2
# What takes longer hangs, whatever it is.
_MOST_S = 300.0

T = TypeVar("T")

# Each with the moment at which it was told last.
_listeners = dict[Callable[[], object], float]()


def beat() -> None:
    """Call all listeners, a few times a second at most; does nothing outside the main thread."""
    if current_thread() is not main_thread():
        return
    now_s = time.monotonic()
    for listener, beat_s in list(_listeners.items()):
        if now_s - beat_s >= _EVERY_S:
            _listeners[listener] = now_s
            listener()


@contextmanager
def heard_by(listener: Callable[[], object]) -> Generator[None]:
    """Tell this one of each beat, until the end of the block."""
    _listeners[listener] = -_EVERY_S
    try:
        yield
    finally:
        del _listeners[listener]


def beating(call: Callable[[], T]) -> T:
    """What a call returns that waits by itself, as for a program or a database; beats meanwhile."""
    is_heard = _listeners and current_thread() is main_thread()
    return awaited(in_thread(call)) if is_heard else call()


def awaited(answer: Future[T]) -> T:
    """The result of a call that runs in another thread; beats until it is there."""
    end_s = time.monotonic() + _MOST_S
    while time.monotonic() < end_s:
        try:
            return answer.result(_EVERY_S)
        except TimeoutError:
            if answer.done():
                raise
            beat()
    return answer.result()


class RunInBackground(Protocol):
    """Starts a call, as `in_thread` does, or makes it `at_once`."""

    def __call__(self, call: Callable[[], T], /) -> Future[T]:
        """Its answer, which may be there later."""
        ...


def in_thread(call: Callable[[], T]) -> Future[T]:
    """What a call returns or raises, from a thread of its own; the process ends without it."""
    answer = Future[T]()
    Thread(target=_answer, args=(answer, call), daemon=True).start()
    return answer


def at_once(call: Callable[[], T]) -> Future[T]:
    """As `in_thread`, for calls that wait for nothing: the answer is there when this returns."""
    answer = Future[T]()
    _answer(answer, call)
    return answer


def _answer(answer: "Future[T]", call: Callable[[], T]) -> None:
    try:
        answer.set_result(call())
    except BaseException as error:  # noqa: BLE001 - whatever it is, raised where it is waited for
        answer.set_exception(error)


_PROC = Path("/proc")
MPS_SERVER = "nvidia-cuda-mps"
"""Beginning of the name of an MPS server; the kernel keeps 15 characters of it."""

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def wait_until(condition: Callable[[], bool], timeout_s: float, poll_s: float = 0.02) -> bool:
    """True as soon as `condition` holds; False when it did not within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        beat()
        time.sleep(poll_s)
    return True


def session_of(pid: int) -> int | None:
    """Session of a living process; None when there is none."""
    # Behind the command's name: state, parent, process group, session (man 5 proc).
    stat = _stat(pid)
    return int(stat[3]) if len(stat) > 3 and stat[0] != "Z" else None


def children_of(pid: int) -> list[int]:
    """Children of a process, also those that have ended and were not waited for."""
    return _by_parent().get(pid, [])


def descendants(pid: int) -> list[int]:
    """Living processes below one."""
    children = _by_parent()
    pids = list(children.get(pid, []))
    for child in pids:
        pids += children.get(child, [])
    return sorted(child for child in pids if owner_of(child) is not None)


def ancestors_of(pid: int) -> list[int]:
    """The parent of a process, the parent of that, and so on."""
    ancestors: list[int] = []
    while len(stat := _stat(pid)) > 3 and (pid := int(stat[1])) and pid not in ancestors:
        ancestors.append(pid)
    return ancestors


def is_stopped(pid: int) -> bool:
    """Whether a process stands still until it is continued, as after SIGSTOP."""
    return _stat(pid)[:1] in (["T"], ["t"])


def is_frozen(pid: int) -> bool:
    """Whether the freezer of control groups holds a process: `docker pause`, a batch system."""
    new, old = control_group(pid), control_group(pid, "freezer")
    is_old = old is not None and "FR" in foreign_text(old / "freezer.state")
    return is_old or (new is not None and "frozen 1" in foreign_text(new / "cgroup.events"))


def control_group(pid: int | str, controller: str = "") -> Path | None:
    """The control group of a process: of version 2, or that of a controller of version 1."""
    mounts = (line.split() for line in foreign_text("/proc/self/mounts").splitlines())
    groups = (line.split(":", 2) for line in foreign_text(f"/proc/{pid}/cgroup").splitlines())
    roots = [
        folder
        for _, folder, kind, options, *_ in mounts
        if kind == ("cgroup" if controller else "cgroup2")
        and (not controller or controller in options.split(","))
    ]
    names = [name for _, of, name in groups if controller in of.split(",")]
    return Path(roots[0] + names[0]) if roots and names else None


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler of its own for a signal."""
    caught = re.search(rb"^SigCgt:\s*(\w+)", _read(f"/proc/{pid}/status"), re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)


def has_memory(pid: int) -> bool:
    """Whether a process runs and is not in the midst of its end."""
    return owner_of(pid) is not None and not _read(f"/proc/{pid}/statm").startswith(b"0 ")


def _by_parent() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for pid in _numbers(_PROC):
        if len(stat := _stat(pid)) > 3:
            children.setdefault(int(stat[1]), []).append(pid)
    return children


def marked_pids(mark: Mapping[str, str]) -> list[int]:
    """Living processes that were started with all variables of `mark`."""
    return [pid for pid in _numbers(_PROC) if carries(pid, mark)]


def carries(pid: int, mark: Mapping[str, str]) -> bool:
    """Whether a living process was started with all variables of `mark`."""
    # Asked many times a second on hosts with hundreds of processes, so nothing is taken apart.
    raw = b"\0" + _read(f"/proc/{pid}/environ")
    return all(b"\0" + os.fsencode(f"{key}={value}") + b"\0" in raw for key, value in mark.items())


def cpu_s(pids: Iterable[int]) -> float:
    """CPU time that the processes and their ended children used so far, user and system, s."""
    # utime, stime, cutime, cstime (man 5 proc).
    return sum(int(ticks) for pid in pids for ticks in _stat(pid)[11:15]) / _TICKS_PER_S


def cpu_steal_s() -> float:
    """CPU time that other guests of the host took from this one since boot, s, all cores."""
    first = foreign_text("/proc/stat").split("\n", 1)[0].split()
    return int(first[8]) / _TICKS_PER_S if len(first) > 8 else 0.0


def owner_of(pid: int) -> int | None:
    """User of a living process; None when there is none."""
    try:
        return None if _stat(pid)[:1] in ([], ["Z"]) else (_PROC / str(pid)).stat().st_uid
    except OSError:
        return None


def name_of(pid: int) -> str:
    """Name of a process as the kernel keeps it, 15 characters; empty when there is none."""
    return foreign_text(f"/proc/{pid}/comm").strip()


def environment_of(pid: int) -> dict[str, str]:
    """Environment that the process was started with; empty when it may not be read."""
    pairs = (item.partition(b"=") for item in _read(f"/proc/{pid}/environ").split(b"\0") if item)
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, _, value in pairs}


def lacking(pids: Iterable[int], wanted: Mapping[str, str]) -> list[int]:
    """Living processes that were not started with all `wanted` variables, or hide theirs."""
    return sorted(pid for pid in pids if _lacks(pid, wanted))


def _lacks(pid: int, wanted: Mapping[str, str]) -> bool:
    # In the middle of exec a process shows no variables for an instant; one that has just ended
    # shows none for good. After 1 s of exec it counts as hiding them.
    wait_until(lambda: bool(environment_of(pid)) or owner_of(pid) is None, 1, poll_s=0.001)
    return not wanted.items() <= environment_of(pid).items() and owner_of(pid) is not None


def pin(pids: Iterable[int], cores: Collection[int]) -> None:
    """Keep every thread of the processes on `cores`."""
    for pid in pids:
        for thread in _numbers(_PROC / str(pid) / "task"):
            # A thread may end between listing and pinning.
            with suppress(ProcessLookupError):
                os.sched_setaffinity(thread, cores)


def _numbers(folder: Path) -> list[int]:
    """Processes or threads that a folder lists; none where it is gone."""
    try:
        return [int(n) for n in os.listdir(folder) if n.isdigit()]  # noqa: PTH208 - as in _read
    except OSError:
        return []


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; empty when the process is gone."""
    return foreign_text(f"/proc/{pid}/stat").rpartition(")")[2].split()


# The maps of a process with tens of thousands of mappings have some megabytes.
_FOREIGN_BYTES = 64 << 20


def _read(path: Path | str) -> bytes:
    try:
        return read_whole(path, _FOREIGN_BYTES)
    except OSError:
        return b""


def foreign_text(path: Path | str) -> str:
    """A file that is not ours, such as those of the kernel; empty where it cannot be read."""
    return _read(path).decode(errors="replace")


def of_user(user: int | None) -> dict[str, Any]:
    """What `subprocess.run` takes for a process of a user, by number; None: of ours.

    Only root may name another user.
    """
    return {} if user in (None, os.geteuid()) else {"user": user, "group": user, "extra_groups": ()}


@dataclass(frozen=True, slots=True)
class _CorePlan:
    """Cores of the profiler, of each job of a set in its order, and of clients that wait."""

    supervisor: frozenset[int]
    slots: tuple[frozenset[int], ...]
    waiting: frozenset[int]

    @property
    def jobs(self) -> frozenset[int]:
        """Everything that is not the profiler's."""
        return _union((*self.slots, self.waiting))


def plan_cores(groups: Sequence[frozenset[int]], jobs: int = 2) -> _CorePlan:
    """Share out physical cores; with fewer than two more than jobs, some serve several owners.

    Args:
        groups: The logical cores of each physical one. Two logical cores of one physical core
            slow each other down, so they never get different owners.
        jobs: Most jobs that run at the same time.
    """
    supervisor, *rest = groups
    rest = rest or [supervisor]
    # Dozens of waiting clients look at their gates 200 times a second each.
    *rest, waiting = rest if len(rest) > 2 else [*rest, rest[-1]]
    # Alternating, so that on a host with two sockets no job is farther from the GPU.
    each = max(1, len(rest) // jobs)
    slots = (rest[slot::jobs][:each] or rest for slot in range(jobs))
    return _CorePlan(supervisor, tuple(map(_union, slots)), waiting)


def available_cores() -> list[int]:
    """Logical cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def physical_cores(topology: Path = Path("/sys/devices/system/cpu")) -> list[frozenset[int]]:
    """The logical cores that this process may use, grouped by physical core."""
    allowed = set(available_cores())
    return sorted({frozenset(_siblings(topology, core) & allowed) for core in allowed}, key=min)


def _siblings(topology: Path, core: int) -> set[int]:
    text = foreign_text(topology / f"cpu{core}/topology/thread_siblings_list")
    siblings = {core}
    for part in filter(None, text.strip().split(",")):
        low, _, high = part.partition("-")
        siblings |= set(range(int(low), int(high or low) + 1))
    return siblings


def _union(groups: Sequence[frozenset[int]]) -> frozenset[int]:
    return frozenset[int]().union(*groups)


_MAPPED = re.compile(r"/lib(cublas|cudnn|torch)\.so[^/]*$")
_TRIPLE = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_TORCH = re.compile(r"^__version__ = '([^'\s]+)'$", re.MULTILINE)


def loaded_libraries(pids: Iterable[int]) -> str | None:
    """Such as "cublas 130100, torch 2.11.0+cu130", by name; None where no version can be read."""
    versions: dict[str, str] = {}
    for pid in pids:
        maps = foreign_text(f"/proc/{pid}/maps").splitlines()
        for path in sorted({line.split(maxsplit=5)[-1] for line in maps if "/lib" in line}):
            # A container has files of its own.
            file = Path("/proc", str(pid), "root", path.removeprefix("/"))
            if (library := _MAPPED.search(path)) and (version := _version(library[1], file)):
                versions[library[1]] = version
    return ", ".join(f"{name} {versions[name]}" for name in sorted(versions)) or None


_HOLDER = re.compile(rf"/(?:site|dist)-packages/({'|'.join(HOLDERS)})[^/]*/.*\.so")


def memory_bound_of(pids: Collection[int]) -> str | None:
    """What bounds the memory that a job's frameworks hold, by what its processes have loaded.

    Such as "XLA_PYTHON_CLIENT_PREALLOCATE=false" or "--gpu-memory-utilization 0.4"; an option that
    no command has is without a value. None: none holds memory that it does not need.
    """
    words = "".join(f"\0{foreign_text(f'/proc/{pid}/cmdline')}" for pid in pids).replace("_", "-")
    bounds: dict[str, str] = {}
    for pid in pids:
        for setting in (
            w
            for name in {*_HOLDER.findall(foreign_text(f"/proc/{pid}/maps"))}
            for w in HOLDERS[name]
        ):
            if setting.startswith("-"):
                bounds[setting] = " ".join(
                    (setting, *re.findall(rf"\0{setting}[=\0]([^\0]+)", words)[-1:])
                )
            elif value := environment_of(pid).get(setting):
                bounds[setting] = f"{setting}={value}"
    return " ".join(sorted(bounds.values())) or None


def _version(name: str, file: Path) -> str | None:
    if name == "torch":
        match = _TORCH.search(foreign_text(file.parents[1] / "version.py"))
        return match and match[1]
    # The folder that wheels were installed into; of a file that is of none, its own.
    names = ("site-packages", "dist-packages")
    packages = next((folder for folder in file.parents if folder.name in names), file.parent)
    # A wheel has its metadata in a folder that begins so.
    wheels = (wheel.name for wheel in packages.glob(f"nvidia_{name}*.dist-info"))
    for text in (file.name, *sorted(wheels)):
        if numbers := _TRIPLE.search(text):
            major, minor, patch = map(int, numbers.groups())
            return str(major * 10000 + minor * 100 + patch)
    return None
