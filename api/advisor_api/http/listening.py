"""The door of the service: a TCP port, or a Unix socket of this host."""

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from advisor.errors import InputError
from advisor_api.http.options import ServeOptions

BACKLOG = 2048


@contextmanager
def listening(options: ServeOptions) -> Generator[socket.socket]:
    """A socket that listens as the options say; what it made in the file system goes with it.

    Raises:
        InputError: the address cannot be listened on, or another server does.
    """
    if options.socket is None:
        with contextlib.closing(_tcp(options)) as listener:
            yield listener
        return
    with contextlib.closing(_unix(options.socket)) as listener:
        ours = options.socket.lstat().st_ino
        try:
            yield listener
        finally:
            with contextlib.suppress(OSError):
                if options.socket.lstat().st_ino == ours:  # not that of a server that came after
                    options.socket.unlink()


def _unix(path: Path) -> socket.socket:
    _remove_left_over(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        # Everybody may knock: who asks is what the kernel says, and others need a token. Nobody
        # can connect before it listens.
        path.chmod(0o666)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise InputError(
            f"cannot listen on {path}",
            why=error.strerror or str(error),
            fix="give a path of at most 100 characters in a folder of yours: --socket PATH",
        ) from error
    return listener


def _remove_left_over(path: Path) -> None:
    """Take away the socket of a server that was killed."""
    try:
        found = path.lstat()
    except OSError:
        return  # nothing is there, or `bind` says why not
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid not in (0, os.geteuid()):
        raise InputError(
            f"{path} is there already, and is not a socket of yours",
            fix="give another path: --socket",
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        try:
            other.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise InputError(
        f"another server listens on {path}", fix="end it, or give another path: --socket"
    )


def _tcp(options: ServeOptions) -> socket.socket:
    try:
        found = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _cannot_listen(options, error, "give an address of this host: --host") from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        fix = "end the other process, or give another port: --port"
        if error.errno != errno.EADDRINUSE:
            fix = "give an address of this host and a port that you may use: --host, --port"
        raise _cannot_listen(options, error, fix) from error
    return listener


def _cannot_listen(options: ServeOptions, error: OSError, fix: str) -> InputError:
    what = f"cannot listen on {options.host} port {options.port}"
    return InputError(what, why=error.strerror or str(error), fix=fix)
