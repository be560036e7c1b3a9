"""Documents of launches to values."""

from typing import TypeVar

from advisor.errors import InputError
from advisor.formats.wire import read
from advisor.launch.records.spec import LaunchSpec
from advisor.launch.records.status import LaunchStatus

T = TypeVar("T")


def parse_spec(text: bytes) -> LaunchSpec:
    """What is to be launched.

    Raises:
        ValueError: it is no spec; says where.
    """
    return _read(LaunchSpec, text)


def parse_status(text: bytes) -> LaunchStatus:
    """Where a launch stands.

    Raises:
        ValueError: it is no status; says where.
    """
    return _read(LaunchStatus, text)


def _read(kind: type[T], text: bytes) -> T:
    try:
        return read(kind, text)
    except InputError as error:
        raise ValueError(str(error)) from error
