"""The door of the service: a TCP port, or a Unix socket of this host."""

import contextlib
import errno
import logging
import os
import socket
import ssl
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


LOG = logging.getLogger("advisor.service")


class Certificate:
    """A certificate and its key, in PEM files, as new connections see them.

    Connections that are open keep what they have. Where `client_ca` is given, clients may show
    a certificate that one of those in it has signed; another one ends the connection.

    Raises:
        InputError: the files cannot be used together.
    """

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None = None) -> None:
        self._files = (certificate, key)
        self._seen = self._state()
        self.context = _context()
        with InputError.instead_of(
            (OSError, ValueError),
            f"TLS cannot use {certificate} with {key}",
            fix="give a certificate and its key, without a password, as PEM files",
        ):
            _load(self.context, self._files)
        if client_ca is not None:
            with InputError.instead_of(
                OSError,
                f"{client_ca} cannot be read as certificates",
                fix="give a PEM file with the certificate that signs those of clients",
            ):
                self.context.load_verify_locations(cafile=str(client_ca))
            self.context.verify_mode = ssl.CERT_OPTIONAL

    def renew(self) -> None:
        """Load the files again where they changed; what cannot be used leaves the old ones."""
        state = self._state()
        if state == self._seen or None in state:
            return
        self._seen = state
        try:
            # First elsewhere: half of a new pair would spoil the context that is in use.
            _load(_context(), self._files)
            _load(self.context, self._files)
        except (OSError, ValueError) as error:
            LOG.error("the new certificate cannot be used, the old one stays: %s", error)
        else:
            LOG.info("loaded the new certificate of %s", self._files[0])

    def _state(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_state_of, self._files))


def _state_of(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None  # being replaced, or lost: the one that is loaded goes on
    return found.st_ino, found.st_mtime_ns, found.st_size


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _load(context: ssl.SSLContext, files: tuple[Path, Path]) -> None:
    # A password that is asked for would wait for ever where nobody sits.
    context.load_cert_chain(*files, password=lambda: "")
