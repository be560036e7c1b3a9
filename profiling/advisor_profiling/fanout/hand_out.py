"""Hands shards to an engine, says what they say, and brings their answers."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from advisor.core.wording import count_of
from advisor.errors import JobError, undone_by
from advisor_profiling.fanout.shards import LOG, Shard, ShardAnswer, read_answer

_POLL_S = 1.0
_LATE_S = 20.0
"""A network file system may show an answer some seconds after its shard has ended."""


class ShardEngine(Protocol):
    """Places shards on nodes, each with a GPU, and starts those again whose node is lost."""

    def submit(self, shards: Sequence[Shard]) -> None:
        """Have each run as soon as there is a GPU for it."""
        ...

    def ended(self) -> Mapping[str, str]:
        """Names of the shards that will not run again, each with an error or nothing."""
        ...

    def stop(self) -> None:
        """End all shards that were submitted, and wait for that, within bounds."""
        ...


def hand_out(
    shards: Sequence[Shard], engine: ShardEngine, say: Callable[[str], None]
) -> list[ShardAnswer]:
    """Have an engine do shards.

    Their folders are there; those that have an answer are not submitted. The engine is stopped
    where this is interrupted.

    Returns:
        For each shard its answer; where there is none an error that says why.
    """
    ended: Mapping[str, str] = {}
    if unanswered := _unanswered(shards):
        # Shards are not measured for a command that is gone.
        with undone_by(engine.stop):
            engine.submit(unanswered)
            ended = _wait(unanswered, engine, say)
    return [read_answer(shard) or _none(shard, ended.get(shard.name, "")) for shard in shards]


def _wait(
    shards: Sequence[Shard], engine: ShardEngine, say: Callable[[str], None]
) -> Mapping[str, str]:
    """Until each has answered or was given up; those that ended, each with its error."""
    said = {shard.name: 0 for shard in shards}
    left, late_s = list(shards), time.monotonic() + _LATE_S
    while True:
        ended, before, left = engine.ended(), len(left), _unanswered(shards)
        for shard in shards:
            said[shard.name] = _pass_on(shard, said[shard.name], say)
        if len(left) < before:
            say(f"{len(shards) - len(left)} of {count_of(len(shards), 'shard')} done")
        if any(shard.name not in ended for shard in left):
            late_s = time.monotonic() + _LATE_S
        elif all(ended[shard.name] for shard in left) or time.monotonic() >= late_s:
            return ended
        time.sleep(_POLL_S)


def _unanswered(shards: Sequence[Shard]) -> list[Shard]:
    return [shard for shard in shards if read_answer(shard) is None]


def _pass_on(shard: Shard, start: int, say: Callable[[str], None]) -> int:
    """Say the whole lines of a shard's log from there on; where they end."""
    with suppress(FileNotFoundError):
        log = (shard.folder / LOG).read_bytes()
        end = log.rfind(b"\n") + 1
        for line in log[start:end].decode(errors="replace").splitlines():
            say(f"{shard.name} |{line}")
        return end
    return start


def _none(shard: Shard, error: str) -> ShardAnswer:
    """As a command says with `--json` that it failed."""
    log = shard.folder / LOG
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    why = error or (lines[-1].strip() if lines else "it ended before it said anything")
    message = f"it gave no answer: {why} (see {shard.folder})"
    return ShardAnswer(JobError.exit_code, {"error": {"message": message}})
