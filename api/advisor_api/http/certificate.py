"""The certificate of a server: loaded, and loaded again when its files are replaced."""

import logging
import ssl
from pathlib import Path

from advisor.errors import InputError

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
