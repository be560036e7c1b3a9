"""A server's writes from outside, to be raced and killed.

python launch_writer.py race URL COUNT    waits for a line, tries for so many GPUs, prints its own
python launch_writer.py write URL COUNT   adds audit entries and launches, prints each number
"""

import sys
from contextlib import suppress
from pathlib import Path

from advisor.errors import BusyError
from advisor.formats.moments import now
from advisor.launch.folder import new_launch_id
from advisor_data.state import AuditEntry, LaunchRow, ServiceState


def row(launch_id: str, host: str) -> LaunchRow:
    return LaunchRow(
        launch_id=launch_id,
        host=host,
        gpu="0",
        state="accepted",
        spec="{}",
        status="{}",
        asked_by="ci",
        request_hash="",
        created_at=now(),
        updated_at=now(),
        home=f"home of {host}",
    )


def race(state: ServiceState, count: int) -> None:
    """A launch on the GPU of each host, at the same time as another process."""
    print("ready", flush=True)
    sys.stdin.readline()
    for host in range(count):
        with suppress(BusyError):
            print(host, state.add_launch(row(new_launch_id(), str(host))).launch_id)


def write(state: ServiceState, count: int) -> None:
    """Many writes, each printed when it was done."""
    for number in range(count):
        state.add_launch(row(f"{number:06}", str(number)))
        state.audit(AuditEntry(at=now(), who="ci", action="a", subject=str(number), outcome="ok"))
        print(number, flush=True)


if __name__ == "__main__":
    with ServiceState(sys.argv[2], Path()) as opened:
        act = {"race": race, "write": write}[sys.argv[1]]
        act(opened, int(sys.argv[3]))
