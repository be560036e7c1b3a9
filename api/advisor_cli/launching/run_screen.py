"""A queue on one screen: while it runs, at its end, and before it starts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.text import Text

from advisor.core.wording import count_of, energy_text, less_or_more
from advisor.formats.moments import duration_text
from advisor_cli.launching.run_state import RunJob, RunState
from advisor_cli.shared.console import plain_table
from advisor_cli.shared.screen import Screen

_COLUMNS = ("job", "GPU", "share", "state", "progress", "speed", "predicted")


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstJob:
    """A job that starts at once; docs/run.md has the keys."""

    job: str
    gpu: int
    share_percent: float
    predicted_speed: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What `--dry-run` tells; docs/run.md has the keys."""

    dry_run: bool = True
    first: tuple[FirstJob, ...]
    running: tuple[str, ...]
    waiting: tuple[str, ...]
    alone: Mapping[str, str]

    def screen(self) -> Screen:
        """The same for a person."""
        number = len(self.first) + len(self.waiting)
        run = f", and {len(self.running)} that run" if self.running else ""
        return Screen(f"{count_of(number, 'job')}{run}; nothing is started.", self._lines())

    def _lines(self) -> Iterator[tuple[str, str]]:
        if self.running:
            yield "Running", f"{', '.join(self.running)}: the same command takes them up"
        for gpu in dict.fromkeys(job.gpu for job in self.first):
            yield f"GPU {gpu}", "; ".join(_first(job) for job in self.first if job.gpu == gpu)
        if joining := [name for name in self.waiting if name not in self.alone]:
            yield "Then", f"{', '.join(joining)}: each joins where that saves time or energy"
        for text in alone_texts(self.alone):
            yield "Alone", text


def alone_texts(alone: Mapping[str, str]) -> Iterator[str]:
    """Who cannot run beside others, why, and what to do about it."""
    for name, why in alone.items():
        yield f"{name}, when the others are done: {why} (advisor profile {name})"


def table(state: RunState) -> Group:
    """Everything on one screen."""
    rows = (_cells(job) for job in state.jobs)
    tail = (
        Text(f"{job.job}: {text}")
        for job in state.jobs
        for text in (job.error, job.unread_text)
        if text
    )
    shown = plain_table(_COLUMNS, rows, whole=_COLUMNS)
    return Group(Text(state.headline, style="bold"), shown, *tail)


def event_lines(before: RunState | None, state: RunState) -> Iterator[str]:
    """A line for each job that is in another state than before, or is not known or stalled now."""
    for n, job in enumerate(state.jobs):
        was = before.jobs[n] if before else None
        if (text := job.unread_text) and text != (was and was.unread_text):
            yield f"{job.job} {text}"
        if (was.state if was else "waiting") == job.state:
            continue
        at = "" if job.gpu is None else f" on GPU {job.gpu} at {job.share_percent:g} %"
        error = f": {job.error}" if job.error else ""
        yield f"{job.job} {job.state}{at}{error} ({state.headline})"


def end_screen(state: RunState) -> Screen:
    """What it took beside what one after the other would have, and how to go on."""
    return Screen(f"{state.state.upper()}: {state.headline}.", _end_lines(state))


def _end_lines(state: RunState) -> Iterator[tuple[str, str]]:
    yield "GPUs", f"held for {_beside(state.gpu_s, state.alone_s, duration_text)}"
    if state.energy_j is not None:
        ran_j, starts = state.energy_j - state.starts_j, energy_text(state.starts_j)
        yield "Energy", _beside(ran_j, state.alone_j, energy_text)
        yield "", f"{starts} more before jobs ran, in all {energy_text(state.energy_j)}"
    if state.unwatched_s:
        yield "Unwatched", f"{state.unwatched_s:.1f} s between two looks at the jobs beyond 2 s"
    for job in state.jobs:
        if job.state == "failed":
            yield "Failed", f"{job.job}: {job.error}; advisor launches show {job.launch_id}"
    if state.state == "stopped":
        yield "Go on", "the same command; what was stopped begins again, what is done does not"
    elif state.count("failed"):
        yield "Again", "the same command runs those that failed, and no other"


def _beside(own: float, apart: float | None, text: Callable[[float], str]) -> str:
    if apart is None:
        return f"{text(own)}; each alone is not known: not every job has a profile"
    saved = less_or_more(1 - own / apart, 0) if apart else "nothing to compare"
    return f"{text(own)}; each alone, by its profile, {text(apart)}: {saved}"


def _cells(job: RunJob) -> Sequence[str]:
    share = "" if job.share_percent is None else f"{job.share_percent:g} %"
    gpu = "" if job.gpu is None else str(job.gpu)
    done = _percent(job.progress) or ("" if job.steps is None else f"{job.steps:,.0f}")
    return job.job, gpu, share, job.state, done, _percent(job.speed), _percent(job.predicted_speed)


def _first(job: FirstJob) -> str:
    speed = "" if job.predicted_speed is None else f", {_percent(job.predicted_speed)} of its speed"
    return f"{job.job} at {job.share_percent:g} %{speed}"


def _percent(part: float | None) -> str:
    return "" if part is None else f"{100 * part:.0f} %"
