"""Files, folders and locks that are whole, and that no other user of the host can change.

A killed process lets go of its lock files. A user who can open a lock file can hold it forever, so
only this user can, or the members of a group whose folder root has made for that
(deploy/advisor.tmpfiles.conf). Users without a common lock meet on the GPU: the driver lists its
processes before anything starts.
"""

import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from advisor.errors import BusyError, UnsafeFileError

_OURS = re.compile(
    r"advisor\.db.*|models|launches|logs|checks|sensors|kernels|inputs|input-model|jobs|fanout|id"
    r"|queues|audits|service\.lock|\..*",
    re.DOTALL,
)


def open_home(home: Path, *below: str) -> Path:
    """The home, or a folder in it, made where it is not there, and closed to others.

    Raises:
        UnsafeFileError: it belongs to another user, or is open to others and holds more than ours.
        OSError: it cannot be made.
    """
    return private_folder(home, *below, ours=_OURS)


def read_plain(path: Path, most_bytes: int, owner: int | None = None) -> bytes | None:
    """The beginning of a file that another user may have put there.

    Args:
        path: Its last part may be anything; the folders before it must be ours.
        most_bytes: Of it.
        owner: Number of the user whose file it must be; None: any user's.

    Returns:
        None where there is none, or it is no plain file, or not that user's.
    """
    with suppress(OSError), open_plain(path, owner=owner) as file:
        return file.read(most_bytes)
    return None


# As proc_locks(5) has it: number, kind, mode, access, process, device and inode, range.
_LOCKS = Path("/proc/locks")


def try_lock(file: IO[Any]) -> bool:
    """Lock an open file for this process alone; False where another one holds it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def holders(file: IO[Any]) -> list[int]:
    """Processes that hold the lock of an open file; none where the kernel does not name them."""
    inode = str(os.fstat(file.fileno()).st_ino)
    try:
        lines = [line.split() for line in _LOCKS.read_text().splitlines()]
    except OSError:
        return []
    return sorted(
        {int(line[4]) for line in lines if line[1] == "FLOCK" and line[5].endswith(f":{inode}")}
        - {-1, 0}
    )


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

RULE = "letters, digits, '.', '_' and '-', the first a letter or digit, at most 100"

PRIVATE_FILE, PUBLIC_FILE, _GROUP_FILE = 0o600, 0o666, 0o660
"""Modes of files: of ours, of what people make to hand on (less the umask), and of a group."""

_GROUP_AND_OTHERS = 0o077
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK

# What opening says of a link, of a FIFO without a reader, of a device, of a folder.
_NO_FILE = (errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EISDIR)


def private_folder(base: Path, *below: str, ours: re.Pattern[str] | None = None) -> Path:
    """A folder that only we may enter, `below` the other, each made or closed where it has to be.

    Args:
        base: The first one. It may be a folder that is there for more than this, such as /tmp, so
            it is closed only where no other user needs it.
        below: Names of the others; they are inside, so they are closed.
        ours: What we put into `base`. One that holds nothing else is what an older version made.

    Returns:
        The last one. A link of our own or of root stands for what it points to.

    Raises:
        UnsafeFileError: one belongs to another user, is no folder, or is open to others and may not
            or cannot be closed.
        OSError: one cannot be made.
    """
    folder = _private(
        base,
        # Where all may write, it was made for all.
        lambda state: (
            ours is not None
            and not state.st_mode & stat.S_IWOTH
            and all(ours.fullmatch(entry.name) for entry in base.iterdir())
        ),
    )
    for name in below:
        folder = _private(folder / name, lambda _: True)
    return folder


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing, for us alone; one that is there stays so.

    Raises:
        OSError: one cannot be made.
    """
    if not folder.parent.exists():
        make_folder(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)


def check_parents(path: Path) -> None:
    """Refuse a place from which another user may take a folder away and put in another one.

    Raises:
        UnsafeFileError: a folder above `path` belongs to another user, or others may write to it
            and it has no sticky bit.
    """
    trusted = {os.geteuid(), *_root()}
    for folder in path.resolve().parents:
        state = folder.stat() if folder.exists() else None
        if state and (
            state.st_uid not in trusted
            # Group or others may write, and move what is not theirs.
            or (state.st_mode & 0o022 and not state.st_mode & stat.S_ISVTX)
        ):
            raise UnsafeFileError(
                f"{path} is in {folder}, in which other users may replace it",
                why=_about(state),
                fix="choose a place that only you, or you and root, may write to",
            )


def open_file(path: Path, flags: int, mode: int = PRIVATE_FILE) -> int:
    """A descriptor of a regular file that has no other name.

    Args:
        path: The file; a link is not followed.
        flags: Of `os.open`, without `O_TRUNC`: the caller truncates a file after a look at it.
        mode: Of a file that is made.

    Raises:
        UnsafeFileError: it is a link, a FIFO, a device, a folder, or has a second name.
        OSError: it cannot be opened.
    """
    try:
        descriptor = _open(path, flags | _FLAGS, mode)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise _no_file(path) from error
        raise
    if _is_plain(os.fstat(descriptor)):
        return descriptor
    os.close(descriptor)
    raise _no_file(path)


def private_file(path: Path, *, make: bool = True) -> None:
    """See to it that only we may read and write a file; it is made where it is not there.

    A link of our own or of root stands for what it points to. The file is not opened for reading:
    closing it again would take the locks away that SQLite has on it in this process.

    Raises:
        UnsafeFileError: it belongs to another user, is not a regular file, or cannot be closed.
        OSError: it is not there, or cannot be made.
    """
    path = _followed(path)
    if make:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, PRIVATE_FILE))
    descriptor = os.open(path, os.O_PATH | _FLAGS)
    try:
        if not _is_plain(os.fstat(descriptor)):
            raise _no_file(path)
        _close_to_others(path, descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def writing_private(path: Path, mode: str = "wb") -> Generator[IO[Any]]:
    """A file for this user alone, as `open` gives it; with a `w` it is emptied first.

    Raises:
        UnsafeFileError: as `private_file`.
        OSError: it cannot be written.
    """
    descriptor = open_file(path, os.O_RDWR | os.O_CREAT | (os.O_APPEND if "a" in mode else 0))
    with os.fdopen(descriptor, mode) as file:
        _close_to_others(path, descriptor)
        if "w" in mode:
            file.truncate(0)
        yield file


def others_write_to(folder: Path) -> bool:
    """Whether users other than root and us may put files into an existing folder.

    Members of its group do not count: we chose them.
    """
    state = state_of(folder)
    return state is not None and bool(
        state.st_uid not in (0, os.geteuid()) or state.st_mode & stat.S_IWOTH
    )


def belongs_to_us(path: Path) -> bool:
    """Whether something is there that is ours."""
    state = state_of(path)
    return state is not None and state.st_uid == os.geteuid()


def state_of(path: Path, *, follow_symlinks: bool = True) -> os.stat_result | None:
    """Owner and mode of what is there; None: nothing that we may look at."""
    with suppress(OSError):
        return path.stat(follow_symlinks=follow_symlinks)
    return None


def _open(path: Path, flags: int, mode: int) -> int:
    """As `os.open`, but what is there is never asked to be made.

    Linux refuses that for another user's file (fs.protected_regular).
    """
    if not flags & os.O_CREAT:
        return os.open(path, flags)
    while True:
        with suppress(FileNotFoundError):
            return os.open(path, flags & ~os.O_CREAT)
        with suppress(FileExistsError):
            return os.open(path, flags | os.O_EXCL, mode)


def _private(path: Path, may_close: Callable[[os.stat_result], bool]) -> Path:
    path = _followed(path)
    make_folder(path)
    try:
        descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | _FLAGS)
    except OSError as error:
        if error.errno in (*_NO_FILE, errno.ENOTDIR):
            raise UnsafeFileError(
                f"{path} is not a folder of this user",
                why="a file is there, or another user's link",
                fix="look at it, and remove it",
            ) from error
        raise
    try:
        _close_to_others(path, descriptor, may_close)
    finally:
        os.close(descriptor)
    return path


def _followed(path: Path) -> Path:
    """The target of a link of ours; any other path as it is."""
    with suppress(FileNotFoundError):
        state = path.lstat()
        if stat.S_ISLNK(state.st_mode) and state.st_uid in (0, os.geteuid()):
            return path.resolve()
    return path


def _close_to_others(
    path: Path, descriptor: int, may_close: Callable[[os.stat_result], bool] = lambda _: True
) -> None:
    state = os.fstat(descriptor)
    if state.st_uid != os.geteuid():
        raise UnsafeFileError(
            f"{path} belongs to another user",
            why=f"{_about(state)}; this is user {os.geteuid()}",
            fix="run as that user, give it to this one with chown, or choose another place",
        )
    if not state.st_mode & _GROUP_AND_OTHERS:
        return
    if not may_close(state):
        raise UnsafeFileError(
            f"{path} is open to other users of the host, and may be there for them",
            why=_about(state),
            fix=f"choose a folder of its own, or close this one: chmod 0700 {path}",
        )
    with suppress(OSError):
        # It may be opened as a path alone.
        Path(f"/proc/self/fd/{descriptor}").chmod(stat.S_IMODE(state.st_mode) & ~_GROUP_AND_OTHERS)
    # A file system without modes says yes and changes nothing.
    if (state := os.fstat(descriptor)).st_mode & _GROUP_AND_OTHERS:
        raise UnsafeFileError(
            f"{path} is open to other users of the host, and that cannot be changed",
            why=_about(state),
            fix="choose a place on a local disk, which keeps owners and modes",
        )


def _is_plain(state: os.stat_result) -> bool:
    return stat.S_ISREG(state.st_mode) and state.st_nlink == 1


def _root() -> set[int]:
    """Numbers that stand for root.

    In a user namespace, as containers without root have it, the host's root is one of those without
    a number, who all get the same one (man 7 user_namespaces).
    """
    is_host = Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]
    return {0} if is_host else {0, int(Path("/proc/sys/kernel/overflowuid").read_text())}


def _about(state: os.stat_result) -> str:
    return f"it belongs to user {state.st_uid} and has mode {stat.S_IMODE(state.st_mode):04o}"


def _no_file(path: Path) -> UnsafeFileError:
    return UnsafeFileError(
        f"{path} is not a plain file with one name",
        why="a link, a second name or a FIFO there may be another user's trap",
        fix="look at it, and remove it",
    )


def replace_file(
    path: Path, data: bytes, mode: int = PRIVATE_FILE, *, durable: bool = True
) -> Path:
    """Write next to the file and swap, so that a full disk or a power cut leaves the old one.

    Its mode is that of the new file, whatever the old one was; the umask takes its part. Where it
    is durable it is on disk when this returns. Waiting for the disk is too slow for what is written
    each second and means nothing after a power cut.

    Raises:
        OSError: it cannot be written.
    """
    # Of its own for each write: threads of one process do not collide, and it cannot be guessed.
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        draft.replace(path)
        if durable:
            sync_folder(path.parent)
    finally:
        draft.unlink(missing_ok=True)
    return path


def sync_folder(folder: Path) -> None:
    """Have the names in a folder survive a power cut.

    Raises:
        OSError: they cannot be written.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_ACCESS = {"rb": os.O_RDONLY, "wb": os.O_WRONLY, "r+b": os.O_RDWR}


def open_plain(
    path: Path | str, mode: str = "rb", *, owner: int | None = None, links: bool = False
) -> IO[Any]:
    """A regular file that is there, without a buffer; nothing of it is changed, or waited for.

    Args:
        path: Where jobs, or other programs of this user, may have put anything by now.
        mode: As of `open`.
        owner: Number of the user whose it must be; None: any user's.
        links: Follow them.

    Raises:
        OSError: it cannot be opened, or is another thing.
    """
    descriptor = os.open(path, _ACCESS[mode] | (_FLAGS & ~os.O_NOFOLLOW if links else _FLAGS))
    state = os.fstat(descriptor)
    if stat.S_ISREG(state.st_mode) and owner in (None, state.st_uid):
        return os.fdopen(descriptor, mode, buffering=0)
    os.close(descriptor)
    whose = "" if owner is None else f" of user {owner}"
    raise OSError(errno.EINVAL, f"it is not a regular file{whose}", str(path))


def read_whole(
    path: Path | str, most_bytes: int, *, owner: int | None = None, links: bool = True
) -> bytes:
    """What a file holds, opened as by `open_plain`.

    Raises:
        OSError: it cannot be read, is not a regular file, or larger than `most_bytes`.
    """
    data = bytearray()
    with open_plain(path, owner=owner, links=links) as file:
        # Read to the limit, whatever its size is said to be: it may grow.
        while more := file.read(min(1 << 16, most_bytes + 1 - len(data))):
            data += more
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes} bytes", str(path))
    return bytes(data)


def read_end(path: Path, most_bytes: int) -> bytes:
    """The last bytes of a log of ours that may have any size; none where it cannot be read."""
    with suppress(OSError), open_plain(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - most_bytes))
        return file.read(most_bytes)
    return b""


def read_ours(path: Path, most_bytes: int = 8 << 20) -> bytes:
    """What a file of this user holds; jobs run as the same one, and may have replaced it.

    A large record of a launch, a join or a queue has some hundred kilobytes.

    Raises:
        OSError: it cannot be read, is a link, no regular file, not ours, or too large.
    """
    return read_whole(path, most_bytes, owner=os.geteuid(), links=False)


@contextmanager
def gpu_lock(folder: Path, gpu_uuid: str, launch_id: str = "") -> Generator[None]:
    """Hold a GPU for this process: two advisors would measure each other.

    Without `launch_id` it is being measured.

    Raises:
        BusyError: another process holds it.
        UnsafeFileError: others than we, or our group, could hold it.
    """
    with open_lock(folder, f"{gpu_uuid[-12:]}.lock") as file:
        if not try_lock(file):
            raise _busy(gpu_uuid, file.read())
        _write_holder(file, launch_id)
        yield


def _write_holder(file: IO[str], name: str = "") -> None:
    """Write the holder of a held lock into its file: this process, and its purpose."""
    file.truncate(0)
    file.write(f"{os.getpid()} {name}".strip())
    file.flush()


@contextmanager
def open_lock(folder: Path, name: str) -> Generator[IO[str]]:
    """A lock file, made where it is not there; nothing of it is changed.

    Raises:
        UnsafeFileError: others than we, or our group, may open it; or it is no plain file.
    """
    check_parents(folder)
    if _is_of_group(folder):
        descriptor = open_file(folder / name, os.O_RDWR | os.O_CREAT, _GROUP_FILE)
        if os.fstat(descriptor).st_uid == os.geteuid():
            os.fchmod(descriptor, _GROUP_FILE)  # whatever the umask has made of it
        with os.fdopen(descriptor, "r+") as file:
            yield file
    else:
        with writing_private(
            private_folder(folder, ours=re.compile(r".*\.lock")) / name, "r+"
        ) as file:
            yield file


def _busy(gpu_uuid: str, holder: str) -> BusyError:
    process, _, launch_id = holder.strip().partition(" ")
    if launch_id:
        return BusyError(
            f"GPU {gpu_uuid} has the launch {launch_id}",
            fix=f"wait for it, or stop it: advisor launches stop {launch_id}; or choose another "
            "GPU with --gpu",
        )
    return BusyError(
        f"GPU {gpu_uuid} is being measured by process {process or 'unknown'}",
        fix="wait for it, or choose another GPU with --gpu",
    )


def _is_of_group(folder: Path) -> bool:
    """Whether root made the folder for a group: no other user enters or removes files."""
    state = state_of(folder, follow_symlinks=False)
    wanted = stat.S_IFDIR | stat.S_ISVTX | stat.S_IWGRP
    return (
        state is not None
        and state.st_uid == 0
        and state.st_mode & (wanted | stat.S_IRWXO) == wanted
    )


@contextmanager
def serving_home(home: Path) -> Generator[str]:
    """Be the one service of a home until the end of the block; a killed one lets go by itself.

    Returns:
        Name of the home, by which services of one database tell their launches apart.

    Raises:
        BusyError: another service has it.
        UnsafeFileError: the home belongs to another user, or cannot be closed to others.
    """
    with writing_private(open_home(home) / "service.lock", "r+") as file:
        if not try_lock(file):
            raise BusyError(
                f"the home {home} has a service already, process {file.read() or 'unknown'}",
                why="two would take each other's launches for their own",
                fix="stop that one, or give this one a home of its own: ADVISOR_HOME",
            )
        _write_holder(file)
        # Made once, and by the process that has the home for itself.
        name = home / "id"
        if not name.exists():
            replace_file(name, secrets.token_hex(8).encode())
        yield name.read_text()
