"""Submits shards, waits for their answers, and says how far they are."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from advisor.core.wording import count_of
from advisor_profiling.fanout.shards import LOG, Answer, Shard, read_answer, read_progress

_POLL_S = 1.0
_SAY_EVERY_S = 10.0
_LATE_S = 20.0
"""A network file system may show an answer some seconds after its shard has ended."""


class Engine(Protocol):
    """Places shards on nodes, each with a GPU, and starts those again whose node is lost."""

    def stop_earlier(self) -> None:
        """End what an earlier command of the same name has left running, and wait for that."""
        ...

    def submit(self, shards: Sequence[Shard]) -> None:
        """Have each run as soon as there is a GPU for it."""
        ...

    def ended(self) -> Mapping[Path, str]:
        """Folders of the shards that will not run again, each with an error or nothing."""
        ...

    def stop(self) -> None:
        """End all shards that were submitted, and wait for that, within bounds."""
        ...

    def close(self) -> None:
        """Ask nothing more."""
        ...


def carry_out(
    shards: Sequence[Shard], engine: Engine, say: Callable[[str], None]
) -> list[Answer | str]:
    """Have an engine do shards.

    Args:
        shards: Prepared; those that have an answer are not submitted.
        engine: Where they run; it is stopped where this is interrupted.
        say: Takes a line of progress now and then.

    Returns:
        For each shard its answer, or why there is none.
    """
    ended: Mapping[Path, str] = {}
    if open_ := [shard for shard in shards if read_answer(shard.folder) is None]:
        try:
            engine.submit(open_)
            ended = _wait(open_, engine, say)
        except BaseException:  # Ctrl-C too: shards are not measured for a command that is gone
            engine.stop()
            raise
        finally:
            engine.close()
    return [read_answer(s.folder) or _why_none(s, ended.get(s.folder, "")) for s in shards]


def _wait(
    shards: Sequence[Shard], engine: Engine, say: Callable[[str], None]
) -> Mapping[Path, str]:
    """Until each has answered or was given up; those that ended, each with its error."""
    ended_s: dict[Path, float] = {}
    said_s, told = -_SAY_EVERY_S, ""
    while True:
        left = [shard.folder for shard in shards if read_answer(shard.folder) is None]
        now_s = time.monotonic()
        ended = engine.ended()
        for folder, error in ended.items():
            ended_s.setdefault(folder, now_s - _LATE_S if error else now_s)
        if all(now_s - ended_s.get(folder, now_s) >= _LATE_S for folder in left):
            return ended
        text = _progress_text(shards, left)
        if text != told and now_s - said_s >= _SAY_EVERY_S:
            say(text)
            said_s, told = now_s, text
        time.sleep(_POLL_S)


def _progress_text(shards: Sequence[Shard], left: Sequence[Path]) -> str:
    found = {s.folder: p for s in shards if (p := read_progress(s.folder)) is not None}
    running = [found[folder] for folder in left if folder in found]
    waiting = len(left) - len(running)
    done, total = (sum(getattr(p, name) for p in found.values()) for name in ("done", "total"))
    text = f"{len(shards) - len(left)} of {count_of(len(shards), 'shard')} done"
    text += f"; {done} of {count_of(total, 'window')}" if found else ""
    text += f", and {count_of(waiting, 'shard')} without a point yet" if waiting else ""
    eta_s = max((progress.eta_s for progress in running), default=0.0)
    return text + (f"; eta {int(eta_s) // 60}:{int(eta_s) % 60:02}" if running else "")


def _why_none(shard: Shard, error: str) -> str:
    log = shard.folder / LOG
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    why = error or (lines[-1].strip() if lines else "it ended before it said anything")
    return f"{shard.name} gave no answer: {why} (see {shard.folder})"
