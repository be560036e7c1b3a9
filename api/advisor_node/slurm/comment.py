"""The word in a job's comment by which it names itself, and in which it is told its share.

`advisor:job=bert,p99=50,speed=0.6` is the user's; `share`, `counted` and `memory` are added by
`advisor slurm match`. The plugin of slurmctld takes these three out of what users write.
"""

import re
from dataclasses import dataclass

from advisor.core.gpu import Share
from advisor.errors import InputError
from advisor.wire.requests import NAME

_WORD = re.compile(r"(?:^|[\s;])advisor:([^\s;]*)", re.IGNORECASE)
_SHARE = re.compile(r"[1-9][0-9]?(?:\.[0-9]{1,17})?|100")
"""The driver takes 0, and more than 100, for no limit at all."""

_PATTERNS = {
    "job": NAME,
    "with": NAME,
    "p99": r"[0-9]{1,9}(?:\.[0-9]{1,9})?",
    "speed": r"(?:0(?:\.[0-9]{1,9})?|1)",
    "share": _SHARE.pattern,
    "counted": r"[1-9][0-9]?|100",
    "memory": r"[1-9][0-9]{0,8}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What a comment says of its job.

    Attributes:
        job: Name of the profiled job.
        beside: Name of the only job that it wants beside it; None: any.
        max_p99_ms: Longest p99 latency; None: no limit.
        min_speed: Minimum relative speed; None: the service's setting.
        share_text: Percent of the SMs, exactly as its tasks have it; None: not decided.
        counted: What Slurm counts of a GPU for it, percent; None: not decided.
        memory_mib: At how much its GPU memory is bounded; None: at nothing.
    """

    job: str
    beside: str | None = None
    max_p99_ms: float | None = None
    min_speed: float | None = None
    share_text: str | None = None
    counted: int | None = None
    memory_mib: int | None = None

    def share(self) -> Share:
        """Its part of a GPU; all of it where nothing is decided."""
        return Share(float(self.share_text or 100), memory_mib=self.memory_mib)

    def text(self) -> str:
        """The word."""
        values = (
            self.job, self.beside, _plain(self.max_p99_ms), _plain(self.min_speed), self.share_text,
            self.counted, self.memory_mib,
        )  # fmt: skip
        given = zip(_PATTERNS, values, strict=True)
        return "advisor:" + ",".join(f"{key}={v}" for key, v in given if v is not None)

    def in_comment(self, comment: str) -> str:
        """A comment with this word in the place of the one that is there."""
        return _WORD.sub(lambda found: found[0][: -len(found[1]) - 8] + self.text(), comment, 1)


def parse_comment(text: str) -> Named | None:
    """What a comment says of its job; None: nothing.

    Raises:
        InputError: a job is named by what is no name.
    """
    if (found := _WORD.search(text)) is None:
        return None
    given: dict[str, str] = {}
    for word in found[1].split(","):
        key, _, value = word.partition("=")
        if key in given or not re.fullmatch(_PATTERNS.get(key, "(?!)"), value):
            raise _no_name(text)
        given[key] = value
    if "job" not in given:
        raise _no_name(text)
    return Named(
        job=given["job"],
        beside=given.get("with"),
        max_p99_ms=_number(given.get("p99")),
        min_speed=_number(given.get("speed")),
        share_text=given.get("share"),
        counted=_count(given.get("counted")),
        memory_mib=_count(given.get("memory")),
    )


def _no_name(text: str) -> InputError:
    return InputError(
        f"the comment {text[:100]!a} names no job",
        fix="write advisor:job=NAME, and ,p99=MS or ,speed=0.6 behind it",
    )


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)


def _count(text: str | None) -> int | None:
    return None if text is None else int(text)


def _plain(number: float | None) -> str | None:
    return None if number is None else f"{number:g}"
