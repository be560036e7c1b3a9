"""What the measuring commands share: the testbed, live or replayed, its store, and how they end."""

import os
import signal
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated, TypeAlias

import typer
from rich.console import Console

from advisor.core.records import Point
from advisor.errors import STOPPED, InputError, SourceError, StoreError
from advisor.settings import Settings
from advisor.validity.sensor_record import PowerTiming, origin_of, power_timing, record_for
from advisor_cli.console import REPLAY, say
from advisor_data import Store, open_store
from advisor_data.bundled import (
    all_sensors,
    bundled_pair_points,
    bundled_reference_points,
    bundled_set_points,
    bundled_set_references,
    bundled_solo_points,
)
from advisor_profiling.fanout import OnWhat
from advisor_profiling.testbed import (
    Mode,
    ReplayTestbed,
    SourceName,
    Testbed,
    find_gpus,
    live_testbed,
)

Telemetry: TypeAlias = Annotated[
    SourceName | None, typer.Option(help="Source of telemetry (default: the vendor's)")
]
Noise: TypeAlias = Annotated[bool, typer.Option("--noise", help="Replay with the measured noise")]
On: TypeAlias = Annotated[
    OnWhat,
    typer.Option("--on", help="GPUs of this host, or of the nodes of a Slurm or Ray cluster"),
]


def check_replay(
    gpus: Sequence[str], noise: bool, source: SourceName | None, mode: Mode | None = None
) -> None:
    """Refuse what a replay cannot do, and what only a replay can.

    Raises:
        InputError: the options do not go together.
    """
    if noise and REPLAY not in gpus:
        raise InputError("--noise is for a replay", fix="add --gpu replay, or leave it out")
    if REPLAY in gpus and (source or mode):
        raise InputError("a replay has its own source and mode", fix="leave out --source, --mode")
    if REPLAY in gpus and len(gpus) > 1:
        raise InputError("a replay cannot be combined with a GPU", fix="give --gpu replay alone")


def check_engine(on: OnWhat, gpu: str) -> None:
    """Refuse the name of a GPU where an engine chooses it.

    Raises:
        InputError: a GPU is named.
    """
    if on != "here" and gpu != "0":
        raise InputError(
            f"--gpu {gpu} cannot be combined with --on {on}",
            fix="leave it out: the engine chooses the GPU of each shard",
        )


def liner(console: Console) -> Callable[[str], None]:
    """Prints lines as they are: nothing in them is markup, and none is broken."""
    return lambda line: console.print(line, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def open_testbed(
    settings: Settings,
    gpu: str,
    source: SourceName | None,
    mode: Mode | None,
    logs: str,
    *,
    jobs: int = 1,
    sets: bool = False,
    noise: str | None = None,
) -> Generator[Testbed]:
    """A live GPU, or the replay of recorded points.

    Args:
        settings: Of the user.
        gpu: Index, UUID or `replay`.
        source: Telemetry of a live GPU.
        mode: How shares are enforced.
        logs: Folder for what the jobs of a live GPU say.
        jobs: Most of a window. Of more than one those that were recorded together are replayed
            too, and the jobs alone as their campaigns measured them.
        sets: Replay the recorded sets of jobs, which are of another GPU model than the pairs.
        noise: Seed of a replay's noise; None: without.
    """
    if gpu == REPLAY and sets:
        yield ReplayTestbed(bundled_set_references(), bundled_set_points(), mode, noise)
    elif gpu == REPLAY:
        recorded = bundled_pair_points() if jobs > 1 else []
        references = bundled_reference_points() if jobs > 1 else []
        yield ReplayTestbed([*bundled_solo_points(), *references], recorded, mode, noise)
    else:
        with live_testbed(settings, gpu, source, mode, logs, max(2, jobs)) as testbed:
            try:
                yield testbed
            finally:
                for gate in testbed.source.gates:
                    if gate.left_out:
                        say(f"! {gate.left_out}", err=True)


@contextmanager
def open_points(settings: Settings, gpu: str) -> Generator[Store]:
    """The user's store; replayed points are no measurements and go to a folder that is dropped."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/points.db" if gpu == REPLAY else settings.database_url
        with open_store(url, settings.home) as store:
            yield store


def measured_timing(
    settings: Settings, gpu: str, source: SourceName | None, console: Console
) -> PowerTiming | None:
    """What `advisor power sensor` found of a card; None where it was not measured.

    A replay has no sensor, and the age of an exporter's readings is unknown. Where the
    record is of another GPU of the model, the console has a line for it.

    Raises:
        InputError: there is no such card.
        StoreError: a record cannot be read.
    """
    records = all_sensors(settings.home) if gpu != REPLAY and source in (None, "nvml") else []
    # Without a driver the testbed raises an error, if it needs one.
    with suppress(SourceError):
        card = find_gpus(gpu) if records else None
        record = card and record_for(card.uuid, card.model, card.driver or "", records)
        if card and record:
            if record.gpu_uuid != card.uuid:
                console.print(f"record of the power sensor: {origin_of(record, card.uuid)}")
            return power_timing(record)
    return None


def part_of(text: str) -> tuple[int, int]:
    """Number and count of a part.

    Raises:
        InputError: it is none.
    """
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise InputError(f"--shard {text} is not a part of a plan", fix="write --shard 2/8")
    return int(number), int(count)


def bundled_points() -> list[Point]:
    """The measurements that come with the package; none where it was installed without them."""
    points: list[Point] = []
    for read in (bundled_solo_points, bundled_reference_points, bundled_pair_points):
        with suppress(StoreError, InputError):
            points += read()
    return points


def say_replay(console: Console, model: str, noise: bool = False) -> None:
    """A line that this is a replay, not a measurement."""
    how = (
        "recorded means come back with noise of the size of their standard errors"
        if noise
        else "recorded means come back without the noise that they had"
    )
    console.print(f"REPLAY of recorded points of {model}: no GPU is used; {how}.")


_STOPPING = b"stopping: the jobs are ended first, which may take a minute ...\n"


@contextmanager
def stoppable(console: Console) -> Generator[None]:
    """Ctrl-C, SIGTERM of a batch system and SIGHUP of a lost terminal all end a run cleanly."""

    def interrupt(number: int, _frame: object) -> None:
        if number == signal.SIGHUP:
            # The shell and the kernel send one each; the second must not break the cleaning up.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        else:
            with suppress(OSError):
                # Not by the console, which the signal may have met in the midst of a line.
                os.write(console.file.fileno(), _STOPPING)
        raise KeyboardInterrupt

    before = {
        number: signal.signal(number, interrupt)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN  # nohup asks that a hangup is ignored
    }
    try:
        yield
    except KeyboardInterrupt:
        # The terminal may be gone.
        with suppress(OSError):
            console.print("stopped; finished points are kept: the same command goes on from here")
        raise typer.Exit(STOPPED) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
