"""What to do about a name that no job has: the same words wherever one is given."""

import difflib
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from advisor.errors import InputError

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
"""What a job may be called."""


def unknown_job(
    name: str, known: Iterable[str], *, among: str = "", again: bool = True
) -> InputError:
    """The error for a job that nobody has defined or measured.

    Args:
        name: What was asked for.
        known: Names of jobs.
        among: Where it was looked for, in words.
        again: Whether to ask again once it is measured; not where measuring is what was asked for.
    """
    names = sorted(set(known))
    several = re.split(r"[+,]", name)
    if len(several) > 1 and set(several) <= {*names}:
        return InputError(f"there is no job {name}", fix=f"write {' '.join(several)}")
    measure = f"{measuring([name])}   # 1 to 3 min of the GPU"
    then = "this command again" + (
        f", with {_called(name)} for it" if _called(name) != name else ""
    )
    near = difflib.get_close_matches(name, names)
    return InputError(
        f"there is no job {name}{among}",
        why="nothing says what it runs" if among else "nothing was measured of it",
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
