"""The folder of a launch: how its supervisor and other processes exchange state.

    spec.json           the request; written before the supervisor starts
    claim               made by the supervisor that runs the launch, so that there is only ever one
    alive               locked while that supervisor lives
    status.json         where it stands; replaced as a whole, about once a second
    stop                a request to stop it
    resplit             the split at which its jobs should start again, until it is seen
    ends/               names of jobs to end while the others go on, until nothing is left of them
    joins/              requests to join, as specs, and their answers, as the status of a job
    reserve             room for the last words, should the disk be full by then
    history.json        its power and speeds over time, in few points
    observations.jsonl  one line for each stretch that is known for good
    observing.jsonl     the same of the others, every few seconds, until they are
    N-a/, N-b/ ..       counter, gate and output of the jobs that were the N-th together
    N-joined-0/ ..      the same of those that joined them

Files, since they outlive every process: a server can be killed and find its launches again.

What is known for good is a line of `observations.jsonl`. The rest is a draft that is replaced as a
whole every few seconds: it counts where its supervisor is gone and can write no better one.

A folder is renamed first: it is no launch any more at that instant, and one whose removal was
killed half way is known by its name and removed at the next time.

The supervisor keeps the history there too, so it has no gap where a service was restarted, and
outlives the launch. When there are too many points, pairs of neighbours are merged. Answers about
launches rest on these files: lists, and the overview of a host.
"""

import fcntl
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from advisor.core.gpu import Gpu
from advisor.core.objectives import Prices
from advisor.core.records import Observation
from advisor.core.wording import listed
from advisor.errors import AdvisorError, BusyError, InputError, NoSplitError
from advisor.files import (
    PRIVATE_FILE,
    open_home,
    open_plain,
    private_folder,
    read_ours,
    replace_file,
    try_lock,
    writing_private,
)
from advisor.formats.moments import is_utc, now, to_text
from advisor.formats.rows import to_row
from advisor.formats.wire import T, read, write
from advisor.launch.spec import (
    History,
    JobHistory,
    JobStatus,
    LaunchPart,
    LaunchSpec,
    LaunchStatus,
    Ledger,
    Resplit,
    Saved,
    State,
    abandoned,
    as_heard,
    mean_of_readings,
    saved,
)
from advisor.runtime.processes import wait_until
from advisor.settings import Retention

# A look for a living supervisor holds its lock for an instant.
_READERS_S = 1.0

_ID_LENGTH = 100
_ID = re.compile(rf"[0-9a-zA-Z-]{{1,{_ID_LENGTH}}}")


@dataclass(frozen=True, slots=True)
class LaunchFolder:
    """One launch's folder."""

    path: Path

    @property
    def launch_id(self) -> str:
        """Name of the launch."""
        return self.path.name

    def read_spec(self) -> LaunchSpec:
        """What is wanted.

        Raises:
            InputError: it cannot be read.
        """
        with InputError.instead_of(
            (OSError, InputError), f"the launch {self.launch_id} has no readable spec"
        ):
            return read(LaunchSpec, read_ours(self.path / "spec.json"))

    def write_spec(self, spec: LaunchSpec) -> None:
        """Replace the request.

        Raises:
            OSError: it cannot be written.
        """
        replace_file(self.path / "spec.json", write(spec).encode())

    def read_status(self) -> LaunchStatus:
        """Status of the launch, with a note where its supervisor is silent, gone or never began."""
        # Looked at before the status: a supervisor writes its last word, then lets go. And the
        # claim before the lock, in which it is made: else one that just begins seems to be gone.
        claimed = self.claimed()
        lives = self.supervised()
        status = _read(LaunchStatus, self.path / "status.json")
        if status is None or not is_utc(status.updated_at):
            status = self._first_status()
        gone = claimed and not lives and not status.over
        return abandoned(status) if gone else as_heard(status)

    def write_status(self, status: LaunchStatus) -> None:
        """Say where it stands; only its supervisor does.

        Raises:
            OSError: it cannot be written; the status before stays.
        """
        replace_file(self.path / "status.json", write(status).encode(), durable=status.over)

    def keep_reserve(self) -> None:
        """Keep room on the disk; where there is none, nothing happens."""
        with suppress(OSError), writing_private(self.path / "reserve") as file:
            # A status and an observation have a few kilobytes each.
            os.posix_fallocate(file.fileno(), 0, 256 << 10)

    def free_reserve(self) -> None:
        """Give the room back to whatever is to be written now."""
        (self.path / "reserve").unlink(missing_ok=True)

    def ask_stop(self) -> None:
        """Ask the supervisor to stop the jobs in the safe order; again does nothing."""
        (self.path / "stop").touch(PRIVATE_FILE)

    def stop_requested(self) -> bool:
        """Whether a stop was requested."""
        return (self.path / "stop").exists()

    @property
    def resplit(self) -> Path:
        """Holds the split at which the jobs should start again, until it is answered."""
        return self.path / "resplit"

    def ask_end(self, job: str) -> Path:
        """Ask the supervisor to end a job, all copies of it; the others go on. Again does nothing.

        Returns:
            The request, a file until nothing is left of the job.

        Raises:
            InputError: there is no such job, or a queue would start it again.
            OSError: it cannot be written; nothing was asked then.
        """
        status = self.read_status()
        if job not in (names := {said.job for said in status.jobs}):
            raise InputError(
                f"there is no job {job} in {self.launch_id}", why=f"it has {listed(sorted(names))}"
            )
        if self.read_spec().pairs[status.pair_number].open_percent:
            raise InputError(
                f"{job} is not ended alone: `advisor run` placed it, and would start it again",
                fix=f"stop the queue, or all of this GPU: advisor launches stop {self.launch_id}",
            )
        request = self.path / "ends" / job
        if not status.over:
            private_folder(request.parent)
            request.touch(PRIVATE_FILE)
        return request

    def ask_resplit(self) -> str:
        """Ask for a start of the jobs at the split that is offered, which is returned.

        Raises:
            NoSplitError: none is offered.
            OSError: it cannot be written; nothing was asked then.
        """
        status = self.read_status()
        offer = status.resplit or Resplit(
            refused=f"it is {status.standing}; a set that runs is looked at after half a minute"
        )
        if offer.refused or status.silent_s is not None:
            raise NoSplitError(
                f"no job of {self.launch_id} is started again",
                why=offer.refused or status.standing,
                fix=f"see advisor launches show {self.launch_id}",
            )
        replace_file(self.resplit, offer.split.encode())
        return offer.split

    def claimed(self) -> bool:
        """Whether a supervisor has ever begun: then no other one may."""
        return (self.path / "claim").exists()

    def supervised(self) -> bool:
        """Whether the supervisor lives."""
        try:
            with open_plain(self.path / "alive", owner=os.geteuid()) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:  # it is locked; or none is there, or what no supervisor made
            return isinstance(error, BlockingIOError)
        return False

    @contextmanager
    def supervising(self) -> Generator[None]:
        """Be the one supervisor of this launch, until the end of the block.

        Raises:
            BusyError: there is or was one.
        """
        with writing_private(self.path / "alive") as file:
            with BusyError.instead_of(
                (BlockingIOError, FileExistsError),
                f"the launch {self.launch_id} has or had a supervisor already",
                why="jobs are never started twice",
                fix="launch them again",
            ):
                # Locked before it is claimed: a reader of the claim sees the lock.
                if not wait_until(lambda: try_lock(file), _READERS_S):
                    raise BlockingIOError
                (self.path / "claim").touch(PRIVATE_FILE, exist_ok=False)
            yield

    def _first_status(self) -> LaunchStatus:
        made_at = now()
        with suppress(OSError):
            made_at = to_text(
                datetime.fromtimestamp((self.path / "spec.json").stat().st_mtime, UTC)
            )
        with suppress(InputError):
            return first_status(self.read_spec(), made_at)
        return LaunchStatus(launch_id=self.launch_id, state="accepted", updated_at=made_at)


def find_folder(root: Path, launch_id: str) -> LaunchFolder:
    """The folder of a launch of this host.

    Raises:
        InputError: there is none; a name with anything but letters, digits and dashes names none.
    """
    folder = LaunchFolder(root / launch_id)
    if _ID.fullmatch(launch_id) and (folder.path / "spec.json").is_file():
        return folder
    raise InputError(
        f"there is no launch {launch_id[:_ID_LENGTH]}", fix="list them: advisor launches"
    )


def create_folder(root: Path, spec: LaunchSpec) -> LaunchFolder:
    """The folder of a new launch, whole or not at all; one that is there stays as it is.

    `root`, which is `launches` in the home, and the home are made where they are not there, and
    closed to others.

    Raises:
        OSError: it cannot be written.
        UnsafeFileError: `root` or the home belongs to another user.
    """
    folder = LaunchFolder(root / spec.launch_id)
    if folder.path.exists():
        return folder
    open_home(root.parent, root.name)
    # Of its own for each try: two that make it at once do not meet in a draft.
    draft = root / f".{spec.launch_id}.{secrets.token_hex(4)}"
    try:
        private_folder(draft)
        replace_file(draft / "spec.json", write(spec).encode())
        draft.rename(folder.path)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        # Another process made it at the same moment.
        if not folder.path.exists():
            raise
    return folder


def list_folders(root: Path) -> list[LaunchFolder]:
    """All launches of this host, the newest first."""
    return [LaunchFolder(p) for p in sorted(root.glob("[!.]*"), reverse=True) if p.is_dir()]


def new_launch_id() -> str:
    """A name that sorts by time, such as 20260131-120000-3f2a91."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


_WRITE_S = 1.0

# What stays when another set is started.
_OF_LAUNCH = [
    "code", "cause", "gpu_uuid", "beside", "gpu_model", "units_total", "power_limit_w", "ledger",
    "whole_energy_j", "starts_energy_j", "unwatched_s", "started_at", "supervisor_pid", "warnings",
]  # fmt: skip


class StatusWriter:
    """The status of a launch.

    A status that cannot be written, as on a full disk, stops no job: jobs are watched all the same,
    and the next one is tried.

    Attributes:
        status: As it is now, written or not.
        said: Names of news that were warned of.
    """

    def __init__(self, folder: LaunchFolder, spec: LaunchSpec) -> None:
        self._folder = folder
        self._written_s = -_WRITE_S
        self._lost = False
        self.status = replace(first_status(spec, now()), supervisor_pid=os.getpid())
        self.said = set[str]()

    def begin_pair(self, spec: LaunchSpec, number: int) -> None:
        """A set is started; what the one before did is in its observation."""
        before, self.status = self.status, first_status(spec, now(), number=number)
        self.enter("starting", **{name: getattr(before, name) for name in _OF_LAUNCH})

    def enter(self, state: State, **changes: Any) -> None:
        """Change the state and write it at once."""
        self.status = replace(self.status, state=state, **{"updated_at": now(), **changes})
        self._write()

    def update(self, **changes: Any) -> None:
        """Change values; written about once a second.

        While jobs run, only a look at them dates the status: a supervisor that was stopped and
        continued would else date old readings as of now.
        """
        heard = {} if self.status.state == "running" else {"updated_at": now()}
        self.status = replace(self.status, **{**heard, **changes})
        if time.monotonic() - self._written_s >= _WRITE_S:
            self._write()

    def warn(self, *texts: str) -> None:
        """Add warnings."""
        self.status = replace(self.status, warnings=(*self.status.warnings, *texts)[:50])

    def blame(self, code: str, cause: str) -> None:
        """Keep what went wrong first."""
        if self.status.code is None:
            self.status = replace(self.status, code=code, cause=cause)

    def close(self, state: State) -> None:
        """The last word."""
        self.status = replace(self.status, state=state, updated_at=now(), ended_at=now())
        self._folder.free_reserve()
        wait_until(self._write, 5, poll_s=0.5)  # a full disk may get free again

    def _write(self) -> bool:
        self._written_s = time.monotonic()
        try:
            self._folder.write_status(self.status)
        except OSError as error:
            if not self._lost:
                self._lost = True
                self.warn(f"the status could not be written for a while: {error.strerror}")
            return False
        return True


def close_unclaimed(
    folder: LaunchFolder, state: State = "stopped", code: str | None = None, cause: str = ""
) -> None:
    """End a launch whose supervisor has not begun, so that none begins any more.

    One that begins at the same moment goes on; it sees a request to stop.

    Raises:
        InputError: its spec cannot be read.
        OSError: the folder cannot be written.
    """
    if folder.claimed():
        return
    with suppress(BusyError), folder.supervising():
        writer = StatusWriter(folder, folder.read_spec())
        if code:
            writer.blame(code, cause)
        writer.close(state)


def first_status(
    spec: LaunchSpec, updated_at: str, gpu: Gpu | None = None, number: int = 0
) -> LaunchStatus:
    """Where a launch stands before anything of its set `number` has begun."""
    pair = spec.pairs[number]
    forecast = pair.forecast
    expected = forecast.jobs if forecast else (None,) * len(pair.parts)
    return LaunchStatus(
        launch_id=spec.launch_id,
        state="accepted",
        updated_at=updated_at,
        gpu_uuid=gpu and gpu.uuid,
        gpu_model=gpu and gpu.model,
        units_total=gpu and gpu.units_total,
        power_limit_w=gpu and gpu.power_limit_w,
        try_s=spec.try_s,
        pair_number=number,
        pairs=len(spec.pairs),
        sharing=pair.split.sharing,
        jobs=tuple(
            JobStatus(
                job=job.name,
                rate_unit=job.progress.unit,
                share_percent=share,
                below_normal=low,
                steps=part.done,
                predicted_rate=expected and expected.rate,
            )
            for part, (share, low), expected in zip(
                pair.parts, pair.split.seats, expected, strict=True
            )
            for job in [part.job]
        ),
        forecast=forecast,
        predicted_power_w=forecast and forecast.power_w,
        warnings=spec.notes,
    )


_REQUEST, _ANSWERED = ".asked.json", ".answered.json"


def ask_join(folder: LaunchFolder, request: LaunchSpec, name: str | None = None) -> str:
    """Ask the supervisor, which takes it up though this process may end; the name of the request.

    Args:
        folder: Of the launch.
        request: One set: the jobs that run at the time of the request, and the newcomer last.
        name: Of the request; None: a new one.

    Raises:
        OSError: it cannot be written; nothing was asked then.
    """
    name = name or secrets.token_hex(8)
    private_folder(_place(folder))
    replace_file(_place(folder) / (name + _REQUEST), write(request).encode())
    return name


def withdraw(folder: LaunchFolder, name: str) -> None:
    """Withdraw the request; has no effect once it is answered."""
    if not _is_answered(folder, name):
        (_place(folder) / (name + _REQUEST)).unlink(missing_ok=True)


def join_requests(folder: LaunchFolder) -> Iterator[tuple[str, LaunchSpec | None]]:
    """Those without an answer, the oldest first, by names; None: it cannot be read."""
    for name in _requests(folder):
        request = read_request(folder, name)
        if not _is_answered(folder, name) and (request or is_requested(folder, name)):
            yield name, request


def joins(folder: LaunchFolder) -> Iterator[tuple[LaunchSpec, JobStatus]]:
    """All requests to join, the oldest first, with their status (`join_status`)."""
    for name in _requests(folder):
        if request := read_request(folder, name):
            yield request, join_status(folder, name, request)


def is_requested(folder: LaunchFolder, name: str) -> bool:
    """Whether it was not withdrawn."""
    return (_place(folder) / (name + _REQUEST)).exists()


def answer(folder: LaunchFolder, said: JobStatus) -> None:
    """Answer the request of a job (`join_id`), once.

    Raises:
        OSError: it cannot be written.
    """
    replace_file(_place(folder) / f"{said.join_id}{_ANSWERED}", write(said).encode())


def read_request(folder: LaunchFolder, name: str) -> LaunchSpec | None:
    """What was asked by that name; None: nothing, or it was withdrawn."""
    return _read(LaunchSpec, _place(folder) / (name + _REQUEST))


def join_status(folder: LaunchFolder, name: str, spec: LaunchSpec | None) -> JobStatus:
    """How a job does that asked to join by that name: `waiting` until it is answered.

    `spec` is the request; None: it cannot be read.
    """
    # Looked at first: the last request is answered before the last word.
    status = folder.read_status()
    if joined := next((job for job in status.jobs if job.join_id == name), None):
        return joined
    if said := _read(JobStatus, _place(folder) / (name + _ANSWERED)):
        # Started again with the others, it has no request of its own any more.
        again = [job for job in status.jobs if job.job == said.job and said.outcome != "refused"]
        if again:
            return replace(again[-1], join_id=name)
        # A supervisor that was killed or stopped since then has written no status that has it.
        return (abandoned if status.over else as_heard)(replace(status, jobs=(said,))).jobs[0]
    waits = (
        replace(first_status(spec, now()).jobs[-1], join_id=name)
        if spec
        else JobStatus(job="a job", rate_unit="", share_percent=0.0, join_id=name)
    )
    return refusal(waits, InputError("the launch has ended meanwhile")) if status.over else waits


def refusal(job: JobStatus, error: AdvisorError) -> JobStatus:
    """The same of a job that does not join, for this reason."""
    return replace(job, outcome="refused", code=error.code, error=str(error))


def parts_of(folder: LaunchFolder, status: LaunchStatus) -> tuple[LaunchPart, ...]:
    """What was asked for the jobs of a status, in their order.

    Raises:
        InputError: what is wanted cannot be read.
    """
    with InputError.instead_of((OSError, InputError), f"{folder.launch_id} cannot be read"):
        paths = [_place(folder) / (job.join_id + _REQUEST) for job in status.jobs if job.join_id]
        joined = (read(LaunchSpec, read_ours(path)).pairs[0].parts[-1] for path in paths)
        return (*folder.read_spec().pairs[status.pair_number].parts, *joined)


def _requests(folder: LaunchFolder) -> list[str]:
    """Their names, the oldest first."""
    entries: list[tuple[int, str]] = []
    for path in _place(folder).glob(f"*{_REQUEST}"):
        # One that is withdrawn at this moment was never there.
        with suppress(FileNotFoundError):
            entries.append((path.stat().st_mtime_ns, path.name.removesuffix(_REQUEST)))
    return [name for _, name in sorted(entries)]


def _is_answered(folder: LaunchFolder, name: str) -> bool:
    return (_place(folder) / (name + _ANSWERED)).exists()


def _place(folder: LaunchFolder) -> Path:
    return folder.path / "joins"


def _read(kind: type[T], path: Path) -> T | None:
    with suppress(OSError, InputError):
        return read(kind, read_ours(path))
    return None


OBSERVATIONS = "observations.jsonl"
DRAFT = "observing.jsonl"

# Tens of thousands of joins, of some kilobytes each.
_OBSERVATIONS_BYTES = 256 << 20


def observation_lines(folder: LaunchFolder) -> list[bytes]:
    """Each observation once; what is added later comes behind. No line that was cut off.

    Raises:
        OSError: they cannot be read.
    """
    # Asked first: a supervisor keeps its observations before it lets go.
    lives = folder.supervised()
    kept = _whole_lines(folder.path / OBSERVATIONS)
    drafts = [] if lives else _whole_lines(folder.path / DRAFT)
    # Killed between the two, it left the same one in both: no other one began at that moment.
    written = b"".join(kept)
    return kept + [
        line for line in drafts if json.loads(line)["started_at"].encode() not in written
    ]


def append_observation(folder: Path, observation: Observation) -> None:
    """Add a line to the launch's observations; it is on disk when this returns.

    Raises:
        OSError: it cannot be written; the lines before are as they were.
    """
    with writing_private(folder / OBSERVATIONS, "ab") as file:
        before = os.fstat(file.fileno()).st_size
        try:
            data = _line(observation)
            while data:
                data = data[os.write(file.fileno(), data) :]
            os.fsync(file.fileno())
        except OSError:
            os.ftruncate(file.fileno(), before)
            raise


def draft_observations(folder: Path, observations: Iterable[Observation], *, durable: bool) -> None:
    """Keep these as far as they are known; they replace the earlier ones.

    Raises:
        OSError: they cannot be written; those of before stay.
    """
    replace_file(folder / DRAFT, b"".join(map(_line, observations)), durable=durable)


def _whole_lines(path: Path) -> list[bytes]:
    with suppress(FileNotFoundError):
        return read_ours(path, _OBSERVATIONS_BYTES).split(b"\n")[:-1]
    return []


def _line(observation: Observation) -> bytes:
    return json.dumps(to_row(observation)).encode() + b"\n"


_HALF = ".removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedLaunch:
    """A launch that has ended, and the room that its folder takes.

    Attributes:
        ended_at: ISO 8601, with its time zone; empty: it cannot be read.
        reason: The bound that it is beyond; None: none.
        why: Why its folder stays, though it is beyond a bound; empty: it does not.
    """

    launch_id: str
    ended_at: str = ""
    size_bytes: int = 0
    reason: Literal["age", "size"] | None = None
    why: str = ""

    @property
    def ended_s(self) -> float:
        """When it ended, s since 1970."""
        return datetime.fromisoformat(self.ended_at).timestamp()


def ended_launch(folder: LaunchFolder) -> EndedLaunch | None:
    """A launch that has ended; None if it has not, the time is unknown, or it is a link.

    Raises:
        OSError: its folder cannot be read.
    """
    status = folder.read_status()
    # A supervisor writes its last word, and then lets go.
    if folder.path.is_symlink() or not status.over or folder.supervised():
        return None
    at = status.ended_at or status.updated_at
    with suppress(ValueError):
        if datetime.fromisoformat(at).tzinfo:
            return EndedLaunch(
                launch_id=folder.launch_id, ended_at=at, size_bytes=_size_bytes(folder.path)
            )
    return None


def beyond(ended: Iterable[EndedLaunch], bounds: Retention, now_s: float) -> list[EndedLaunch]:
    """Which launches are beyond the bounds `now_s` (since 1970), with the reason, oldest first.

    Bounded are their age, and the room that they take together.
    """
    launches: list[EndedLaunch] = []
    taken_bytes = 0
    for launch in sorted(ended, key=lambda launch: (launch.ended_s, launch.launch_id))[::-1]:
        if now_s - launch.ended_s > bounds.launch_days * 86_400:
            launches.append(replace(launch, reason="age"))
            continue
        taken_bytes += launch.size_bytes
        if taken_bytes > bounds.launch_gib * 2**30:
            launches.append(replace(launch, reason="size"))
    return launches[::-1]


def remove(folder: Path) -> None:
    """Remove the folder of a launch that has ended; links in it go, what they point to stays.

    Raises:
        OSError: something in it cannot be removed; what is left goes at the next time.
    """
    shutil.rmtree(folder.rename(folder.with_name(f".{folder.name}{_HALF}")))


def half_removed(root: Path) -> list[Path]:
    """What removals that were killed have left."""
    return sorted(root.glob(f".*{_HALF}"))


# Maximum number of samples; one more triggers pairwise merging.
MOST_POINTS = 127


class HistoryKeeper:
    """Takes in statuses of one set, and keeps what is drawn of them."""

    def __init__(self, started_at: str, step_s: float = 1.0) -> None:
        self.history = History(started_at=started_at, step_s=step_s)
        self._open: list[LaunchStatus] = []

    def add(self, passed_s: float, status: LaunchStatus) -> bool:
        """A status so long after the begin; whether a step was completed by it."""
        self._open.append(status)
        done = len(self.history.power_w) * self.history.step_s
        if passed_s < done + self.history.step_s:
            return False
        # One that was not looked at for a while has no points of that time.
        gap = (None,) * min(int((passed_s - done) / self.history.step_s) - 1, MOST_POINTS)
        before = len(self.history.power_w)
        jobs = dict(enumerate(self.history.jobs))
        for n, job in enumerate(self._open[-1].jobs):
            earlier = jobs.get(n) or JobHistory(
                job=job.job, speeds=(None,) * before, p99_ms=(None,) * before
            )
            of = [status.jobs[n] for status in self._open if n < len(status.jobs)]
            jobs[n] = replace(
                earlier,
                speeds=(
                    *earlier.speeds,
                    *gap,
                    mean_of_readings([status.relative_speed for status in of]),
                ),
                p99_ms=(
                    *earlier.p99_ms,
                    *gap,
                    mean_of_readings([status.latency_p99_ms for status in of]),
                ),
            )
        self.history = replace(
            self.history,
            power_w=(
                *self.history.power_w,
                *gap,
                mean_of_readings([status.power_w for status in self._open]),
            ),
            energy_saved=(
                *self.history.energy_saved,
                *gap,
                mean_of_readings([status.energy_saved for status in self._open]),
            ),
            jobs=tuple(jobs.values()),
        ).thinned(MOST_POINTS)
        self._open = []
        return True


def write_history(folder: LaunchFolder, history: History) -> None:
    """Keep it; on a full disk that of before stays."""
    with suppress(OSError):
        replace_file(folder.path / "history.json", write(history).encode(), durable=False)


def read_history(folder: LaunchFolder) -> History | None:
    """As far as it is kept; None: it has just begun, or its file is damaged."""
    return _read(History, folder.path / "history.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchList:
    """The newest first."""

    launches: tuple[LaunchStatus, ...]


MOST_ENDED = 8
# Of what is drawn small.
_RUNNING_POINTS, _ENDED_POINTS = 64, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class CardNow:
    """One GPU at one moment.

    Attributes:
        power_w: Of each GPU of a launch the mean of them; None: it cannot be read from here.
        launch_id: Of the launch that holds it; None: none does.
    """

    host: str
    gpu_uuid: str
    gpu_model: str | None
    units_total: int | None
    power_w: float | None
    power_limit_w: float | None
    launch_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Everything of one moment.

    Attributes:
        replayed: All of it was recorded earlier, and is played again.
        at: The moment, ISO 8601.
        gpus: Those of this host, and others on which something runs.
        running: Launches that are not over, the newest first, with their history.
        ended: The newest ended launches, likewise.
        today: Since midnight on the host of the service.
        week: Since Monday.
    """

    replayed: bool = False
    at: str
    gpus: tuple[CardNow, ...]
    running: tuple[LaunchStatus, ...]
    ended: tuple[LaunchStatus, ...]
    today: Saved
    week: Saved


def midnight(now: datetime, days_back: int = 0) -> datetime:
    """Begin of the day, or of one before it, by the clock that the host shows then."""
    # Without a zone it is a time of the host's clock, whose offset of that moment is put in: on
    # days on which clocks change it is not that of now.
    return datetime.combine(
        now.astimezone().date() - timedelta(days=days_back), datetime.min.time()
    ).astimezone()


def overview(
    *,
    now: datetime,
    running: Sequence[LaunchStatus],
    ended: Sequence[LaunchStatus],
    entries: Sequence[LaunchStatus],
    cards: Sequence[tuple[Gpu, float | None]],
    host: str,
    history_of: Callable[[str], History | None],
    prices: Prices,
    replayed: bool = False,
) -> Overview:
    """The answer; histories are as coarse as small drawings.

    Args:
        now: The moment.
        running: Launches that are not over, each as it may be shown.
        ended: The newest of those that are.
        entries: All launches of the week.
        cards: GPUs of this host, with the power that they draw now.
        host: Its name.
        history_of: By the name of a launch; None: there is none.
        prices: Of the settings.
        replayed: All of it was recorded earlier.
    """

    def drawn(launches: Iterable[LaunchStatus], most: int) -> tuple[LaunchStatus, ...]:
        pairs = ((launch, history_of(launch.launch_id)) for launch in launches)
        return tuple(
            replace(launch, history=history and history.compact(most)) for launch, history in pairs
        )

    def since(begin: datetime) -> Saved:
        return saved(begin.isoformat(), _parts(entries, begin, now), prices)

    return Overview(
        replayed=replayed,
        at=to_text(now),
        gpus=tuple(_cards(cards, host, running)),
        running=drawn(running, _RUNNING_POINTS),
        ended=drawn(ended[:MOST_ENDED], _ENDED_POINTS),
        today=since(midnight(now)),
        week=since(midnight(now, now.astimezone().weekday())),
    )


def _size_bytes(folder: Path) -> int:
    """Room that a folder takes on the disk; what links point to does not count."""
    total = 0
    for path, _, files in os.walk(folder):
        for name in (".", *files):
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(path, name)).st_blocks * 512  # noqa: PTH118
    return total


def _parts(
    entries: Iterable[LaunchStatus], begin: datetime, now: datetime
) -> Iterator[Ledger | None]:
    """Of each launch what falls into the time, as if it were spread evenly."""
    for launch in entries:
        if ran := launch.ran(now):
            begun, ended = ran
            inside = ended - max(begun, begin)
            if inside > timedelta():
                yield launch.ledger and launch.ledger.part(min(1.0, inside / (ended - begun)))


def _cards(
    cards: Iterable[tuple[Gpu, float | None]], here: str, running: Iterable[LaunchStatus]
) -> Iterator[CardNow]:
    held = {uuid: launch for launch in running for uuid in launch.gpus}
    for gpu, power_w in cards:
        by = held.pop(gpu.uuid, None)
        yield CardNow(
            host=here,
            gpu_uuid=gpu.uuid,
            gpu_model=gpu.model,
            units_total=gpu.units_total or (by and by.units_total),
            power_w=power_w if by is None or _reported_w(by) is None else _reported_w(by),
            power_limit_w=gpu.power_limit_w,
            launch_id=by and by.launch_id,
        )
    for uuid, by in sorted(held.items(), key=lambda item: (item[1].host, item[0])):
        yield CardNow(
            host=by.host,
            gpu_uuid=uuid,
            gpu_model=by.gpu_model,
            units_total=by.units_total,
            power_w=_reported_w(by),
            power_limit_w=by.power_limit_w and by.power_limit_w / len(by.gpus),
            launch_id=by.launch_id,
        )


def _reported_w(launch: LaunchStatus) -> float | None:
    """What a launch says that a card draws; None: it says nothing, or was not heard of lately."""
    power_w = None if launch.silent_s is not None else launch.power_w
    return power_w and power_w / len(launch.gpus)
