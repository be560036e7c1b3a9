"""What to do about a name that no job has: the same words wherever one is given."""

import difflib
from collections.abc import Iterable

from advisor.errors import InputError


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
    measure = f"advisor profile --name {name} -- COMMAND   # 1 to 3 min of the GPU"
    near = difflib.get_close_matches(name, names)
    return InputError(
        f"there is no job {name}{among}",
        why="nothing says what it runs" if among else "nothing was measured of it",
        fix=f"similar names: {', '.join(near)}" if near else "names: advisor jobs --bundled",
        steps=[measure, "this command again"] if again else [measure],
    )
