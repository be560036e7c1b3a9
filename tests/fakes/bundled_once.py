"""The points that come with the package are parsed once by each process of the tests."""

import functools
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any

import pytest

from advisor_data import bundled


@contextmanager
def bundled_once() -> Generator[None]:
    """Meanwhile a file is parsed anew only where a test has put another folder in its place."""
    parse = vars(bundled)["_points"]

    @functools.cache
    def parsed(_folder: Callable[..., Any], *what: Any) -> tuple[Any, ...]:
        return tuple(parse(*what))

    def points(name: str, kind: type, jobs: Iterable[str] | None) -> list[Any]:
        among = None if jobs is None else frozenset(jobs)
        return list(parsed(bundled.resources.files, name, kind, among))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundled, "_points", points)
        yield
