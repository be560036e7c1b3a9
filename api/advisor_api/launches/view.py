"""What is shown of a launch: to those who may launch all of it, to readers nothing that jobs wrote.

What a job writes may hold secrets and paths, and so may an error of the system. A reader gets the
code; warnings with addresses and paths taken out of them; and of causes only that there is one.
"""

import re
from dataclasses import replace
from typing import cast

from advisor.errors import InputError
from advisor.launch.records.answers import Launch, launch_of
from advisor.launch.records.folder import LaunchFolder, loads
from advisor.launch.records.status import LaunchStatus, State, as_heard
from advisor.launch.records.status_writer import first_status
from advisor_api.http.access import Caller
from advisor_data.state import LaunchRow

HIDDEN = "shown to tokens with the scope launch"

# Rates as images/s and splits as 30/70 have something before the slash.
_PLACE = re.compile(r"[\w+.-]+:/+[^\s;,]*|(?<![\w/])~?/[^\s;:,]*")


def current_status(folder: LaunchFolder) -> LaunchStatus:
    """Where a launch of this host stands now, its jobs named from the first moment on."""
    status = folder.read_status()
    if status.jobs:
        return status
    try:
        first = first_status(folder.read_spec(), status.updated_at)
    except InputError:
        return status
    known = ("state", "code", "cause", "silent_s")
    return replace(first, **{name: getattr(status, name) for name in known})


def stored_status(row: LaunchRow) -> LaunchStatus:
    """The last status that the database has."""
    try:
        return loads(LaunchStatus, row.status.encode())
    except ValueError:
        # Of another version of advisor: what is a column of its own is still known.
        state = cast("State", row.state)
        return LaunchStatus(launch_id=row.launch_id, state=state, updated_at=row.updated_at)


def last_heard(row: LaunchRow) -> LaunchStatus:
    """Of a launch of another host, as of when its service has kept it last."""
    return as_heard(stored_status(row))


def visible_launch(status: LaunchStatus, host: str, caller: Caller) -> Launch:
    """A launch as a caller may see it."""
    seen = status if "launch" in caller.scopes else _for_reader(status)
    return launch_of(seen, host)


def _for_reader(status: LaunchStatus) -> LaunchStatus:
    return replace(
        status,
        cause=status.cause and HIDDEN,
        jobs=tuple(replace(job, error=job.error and HIDDEN) for job in status.jobs),
        warnings=tuple(_PLACE.sub("…", text) for text in status.warnings),
    )
