"""The steps of a launch: a row of the database, a folder of its host, a supervisor; all may block.

Each can be done again without harm: the row holds its GPU, the folder is there whole or not at all,
and of several supervisors one claims the folder. So whatever is killed in between, the reconciler
of any service on this host goes on from where it stopped (advisor_api/launches/reconciler.py).
"""

import socket
from dataclasses import replace
from pathlib import Path

from advisor.core.gpu import Gpu
from advisor.errors import BusyError, UnsafeFileError
from advisor.formats.moments import now
from advisor.launch.records.folder import LaunchFolder, create_folder, dumps, loads
from advisor.launch.records.spec import LaunchSpec
from advisor.launch.records.status import OVER, LaunchStatus, State
from advisor.launch.records.status_writer import StatusWriter, first_status
from advisor.launch.start.spawn import spawn_supervisor
from advisor.settings import Settings
from advisor_api.http.errors import LOG
from advisor_api.launches.view import current_status, stored_status
from advisor_data.state import LaunchRow, ServiceState
from advisor_profiling import SUPERVISOR

HOST = socket.gethostname()
"""Where launches run; in a container it changes with each start."""


def launches_folder(settings: Settings) -> Path:
    """Where the folders of all launches of this host are."""
    return settings.home / "launches"


def is_ours(row: LaunchRow, home: str) -> bool:
    """Whether the service of this home looks after a launch, and no other one."""
    return row.host == HOST if row.home is None else row.home == home


def new_row(
    spec: LaunchSpec, gpu: Gpu, home: str, hashed: str, key: str | None = None
) -> LaunchRow:
    """The row of a launch that is about to begin."""
    at = now()
    row = row_of(spec, first_status(spec, at, gpu), home, hashed, at)
    return replace(row, gpu=gpu.uuid, gpu_uuid=gpu.uuid, idempotency_key=key)


def row_of(
    spec: LaunchSpec, status: LaunchStatus, home: str, hashed: str, created_at: str
) -> LaunchRow:
    """The row of a launch of this host, as it stands."""
    return LaunchRow(
        launch_id=spec.launch_id,
        host=HOST,
        gpu=status.gpu_uuid or spec.gpu,
        gpu_uuid=status.gpu_uuid,
        state=status.state,
        spec=dumps(spec).decode(),
        status=dumps(status).decode(),
        asked_by=spec.asked_by,
        request_hash=hashed,
        created_at=created_at,
        updated_at=status.updated_at,
        home=home,
    )


def start_supervisor(row: LaunchRow, state: ServiceState, settings: Settings) -> None:
    """Make the folder of a launch and start its supervisor, if it is not over; again does no harm.

    Raises:
        OSError: the folder cannot be written; the launch is failed.
        StoreError: nor could that be kept; the reconciler tries again.
        UnsafeFileError: others could have a hand in the folder; the launch is failed.
    """
    if row.state in OVER:
        return
    try:
        folder = folder_of(row, settings)
    except OSError as error:
        fail(row, state, "system", f"the folder of the launch cannot be written: {error.strerror}")
        raise
    except UnsafeFileError as error:
        fail(row, state, error.code, str(error))
        raise
    if folder.claimed():
        return
    try:
        spawn_supervisor(folder, settings, SUPERVISOR)
    except OSError as error:
        # It was accepted: the reconciler tries again.
        LOG.error("the supervisor of %s cannot be started: %s", row.launch_id, error)


def folder_of(row: LaunchRow, settings: Settings) -> LaunchFolder:
    """The folder of a launch of this host, made where it is not there.

    Raises:
        OSError: it cannot be written.
        ValueError: the row is of another version of advisor.
    """
    return create_folder(launches_folder(settings), loads(LaunchSpec, row.spec.encode()))


def fail(row: LaunchRow, state: ServiceState, code: str, cause: str) -> None:
    """Keep that a launch has failed.

    Raises:
        StoreError: it could not be kept.
    """
    at = now()
    status = replace(
        stored_status(row), state="failed", code=code, cause=cause, updated_at=at, ended_at=at
    )
    state.update_launch(row.launch_id, status.state, dumps(status).decode())


def close_unclaimed(
    folder: LaunchFolder, state: State, code: str | None = None, cause: str = ""
) -> None:
    """End a launch whose supervisor has not begun, so that none can begin any more.

    One that begins at the same moment goes on; it sees a request to stop.

    Raises:
        InputError: its spec cannot be read.
        OSError: the folder cannot be written.
    """
    try:
        with folder.supervising():
            writer = StatusWriter(folder, folder.read_spec())
            if code:
                writer.blame(code, cause)
            writer.close(state)
    except BusyError:
        return


def keep_status(row: LaunchRow, status: LaunchStatus, state: ServiceState) -> None:
    """Keep where a launch stands, where that is news.

    Raises:
        StoreError: it could not be kept.
    """
    text = dumps(status).decode()
    if row.state not in OVER and row.status != text:
        state.update_launch(row.launch_id, status.state, text)


def release_gpus(state: ServiceState, settings: Settings, home: str) -> None:
    """Let go of the GPUs of this home whose launches have ended since the reconciler last looked.

    Raises:
        StoreError: the database does not answer.
    """
    for row in state.launches(host=HOST, home=home, active_only=True):
        folder = LaunchFolder(launches_folder(settings) / row.launch_id)
        if folder.claimed() and (status := current_status(folder)).over:
            keep_status(row, status, state)
