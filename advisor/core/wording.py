"""Words of messages."""

import difflib
import json
import logging
import re
import shlex
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from numbers import Real
from pathlib import PurePath
from typing import cast

from advisor.errors import InputError


def count_of(count: int, thing: str) -> str:
    """So many of a thing, whose plural ends in s, or es after an s or ch."""
    return (
        f"1 {thing}"
        if count == 1
        else f"{count} {thing}{'es' if thing.endswith(('s', 'ch')) else 's'}"
    )


def less_or_more(saved: float, digits: int = 1) -> str:
    """A part that is saved, as `12.3 % less`; below 0 it is `12.3 % more`, near it `as much`."""
    percent = f"{100 * abs(saved):.{digits}f}"
    return f"{percent} % {'less' if saved > 0 else 'more'}" if float(percent) else "as much"


def in_digits(value: float, digits: int = 3) -> str:
    """A number rounded to so many digits, with commas and without an exponent: `10,200`."""
    return f"{float(f'{value:.{digits}g}'):,.12g}"


def percent(part: float, digits: int = 0) -> str:
    """A part of 1 as people write it."""
    return f"{100 * part:.{digits}f} %"


def energy_text(joules: float) -> str:
    """Watt hours with three digits."""
    wh = joules / 3600
    return f"{in_digits(wh / 1000)} kWh" if wh >= 1000 else f"{in_digits(wh)} Wh"


def listed(things: Iterable[object]) -> str:
    """Things as people list them: `1, 2 and 3`; empty where there are none."""
    *first, last = [*map(str, things)] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def counted(names: Iterable[str]) -> str:
    """Names as `listed`, equal ones once: `2 x a and b`."""
    return listed(
        f"{count} x {name}" if count > 1 else name for name, count in Counter(names).items()
    )


def as_requested(names: Iterable[str]) -> str:
    """Names as a shell hands them to commands, copies that follow each other once: `'a*2' b`."""
    runs = ((name, len([*alike])) for name, alike in groupby(names))
    return shlex.join(f"{name}*{count}" if count > 1 else name for name, count in runs)


def limits_text(jobs: Iterable[str], shares_percent: Iterable[float]) -> str:
    """Limits that jobs have, as `advisor colocate --sets` takes them: `a@30 and 2 x b@50`."""
    seats = zip(jobs, shares_percent, strict=True)
    return counted(f"{job}@{share:.3g}" for job, share in seats if share < 100)


def option_words(options: Mapping[str, object]) -> str:
    """Options of a command that are given, each with a blank in front; lists are repeated."""
    return "".join(
        f" --{name.replace('_', '-')} "
        + shlex.quote(
            f"{value:.10g}"
            if isinstance(value, Real) and not isinstance(value, int)
            else str(value)
        )
        for name, of in options.items()
        for value in (cast("list[object]", of) if isinstance(of, list) else [of])
        if value not in (None, False)
    )


def below_normal_text(jobs: Iterable[str]) -> str:
    """What follows a way of sharing: `, a below normal priority`; empty where no job is."""
    return f", {names} below normal priority" if (names := listed(jobs)) else ""


_KEPT = re.compile(r"(?<![\w.-])(-?\d[\d.,]*) (?=[^\W\d]|%)")

_OPTION = re.compile(r"( --[\w-]+) (?=[\w(])")


def folded(text: str, width: int, before: str = "") -> str:
    """Lines of at most `width` characters, indented by `before`, which the first line shows.

    A number stays with its unit, and an option with its value. A command that takes several lines
    can be pasted: each but the last ends with a backslash.
    """
    end = " \\" if text.startswith("advisor ") else ""
    kept = _OPTION.sub("\\1\N{NO-BREAK SPACE}", _KEPT.sub("\\1\N{NO-BREAK SPACE}", text))
    lines = textwrap.wrap(
        kept, width - len(before + end), break_on_hyphens=False, break_long_words=False
    )
    return before + f"{end}\n{' ' * len(before)}".join(lines).replace("\N{NO-BREAK SPACE}", " ")


def in_rows(counts: Iterable[int], step: int) -> list[list[int]]:
    """Ascending counts, those that follow each other by a step in one row."""
    # In a row each is as far from its place times the step.
    rows = groupby(enumerate(counts), lambda placed: placed[1] - placed[0] * step)
    return [[count for _, count in row] for _, row in rows]


def in_ranges(counts: Iterable[int], step: int) -> str:
    """Ascending counts, three or more in a row as `72 to 116`; see `listed`."""
    return listed(
        text
        for row in in_rows(counts, step)
        for text in ([f"{row[0]} to {row[-1]}"] if len(row) > 2 else map(str, row))
    )


def printable(text: str) -> str:
    r"""A text of others, such as output of a job or the name of a file, that steers no terminal.

    What would, but for newline and tab, is shown as JSON writes it: `\u001b`, `\u202e`.
    """
    is_plain = text.replace("\n", "").replace("\t", "").isprintable()
    return text if is_plain else "".join(map(_shown, text))


SHOWN = 60
"""Characters of a value in a message."""


def shown(given: object) -> str:
    """A value as a message may repeat it: in ASCII, so that no terminal is steered by it."""
    text = ascii(given[:SHOWN] if isinstance(given, str) else given)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


class PrintableFormatter(logging.Formatter):
    """Of a log: causes quote foreign text, and a terminal may show it.

    A message is one line, so that no text of others passes for the next one.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """A line, before the traceback, if any."""
        return super().formatMessage(record).replace("\n", r"\n")

    def format(self, record: logging.LogRecord) -> str:
        """The whole text of a record."""
        return printable(super().format(record))


class JsonFormatter(logging.Formatter):
    """Of a log for programs: an object a line, in ASCII, so that nothing of others ends it."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level and message; `error` is the traceback, if any."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        said = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        trace = {"error": self.formatException(record.exc_info)} if record.exc_info else {}
        return json.dumps({**said, **trace})


def _shown(character: str) -> str:
    # What a terminal obeys or what turns text around, and half characters.
    if character in "\n\t" or unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}:
        return character
    halves = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{halves[n : n + 2].hex()}" for n in range(0, len(halves), 2))


NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
"""What a job may be called."""


def unknown_job(
    name: str, jobs: Iterable[str], *, among: str = "", again: bool = True
) -> InputError:
    """The error for a job that is neither defined nor measured.

    Args:
        name: What was asked for.
        jobs: Names of jobs.
        among: Where it was looked for, in words.
        again: Whether to ask again once it is measured; not where measuring is what was asked for.
    """
    names = sorted(set(jobs))
    several = re.split(r"[+,]", name)
    if len(several) > 1 and set(several) <= {*names}:
        return InputError(f"there is no job {name}", fix=f"write {' '.join(several)}")
    measure = f"{measuring([name])}   # 1 to 3 min of the GPU"
    then = "this command again" + (
        f", with {_called(name)} for it" if _called(name) != name else ""
    )
    near = difflib.get_close_matches(name.lower(), names)
    with_profile = (
        f"; if it has a profile, write `command:` into {name}.yaml there" if again else ""
    )
    return InputError(
        f"there is no job {name}{among}",
        why=f"its command is unknown{with_profile}" if among else "nothing was measured of it",
        fix=f"similar names: {', '.join(near)}" if near else "names: advisor jobs --bundled",
        steps=[measure, then] if again else [measure],
    )


def measuring(words: Sequence[str]) -> str:
    """How a command is profiled, or what was taken for the name of a job.

    Of a Python script it can be entered as it stands.
    """
    script = next((word for word in words if word.endswith(".py")), None)
    if script is None:
        return f"advisor profile --name {_called(words[0])} -- COMMAND"
    command = shlex.join(words) if len(words) > 1 else f"python {script}"
    return f"advisor profile --name {_called(script)} -- {command}"


def _called(word: str) -> str:
    """A name for it that a job may have."""
    name = PurePath(word).stem if word.endswith(".py") else word
    return name if NAME.fullmatch(name) else "NAME"
