"""Fills the matrices of cases in processes beside the measurement, and hands them over as files."""

import os
import signal
from collections.abc import Generator, Iterable
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from advisor.errors import InputError
from advisor_power.inputs.case import InputCase
from advisor_power.inputs.result import OperandState
from advisor_power.operands.fill import Filled, fill, fill_pair
from advisor_power.operands.fingerprint import Fingerprint, fingerprint
from advisor_power.tensors.types import Matrix

MOST_PROCESSES = 6
"""Sorting 4096 by 4096 numbers takes longer than measuring their product."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrices:
    """Both matrices of a case."""

    a_path: Path
    """The bytes of A, row by row."""
    a: OperandState
    b_path: Path | None
    """The bytes of B, column by column; None where the work has no B."""
    b: OperandState | None
    fingerprint: Fingerprint | None

    def remove(self) -> None:
        """Delete the files."""
        for path in (self.a_path, self.b_path):
            if path is not None:
                path.unlink(missing_ok=True)


def fill_case(case: InputCase, stem: Path) -> Matrices:
    """Fill the matrices of a case into files that begin with `stem`.

    Raises:
        InputError: as `fill.fill_pair`, or there is no room for the files.
    """
    m, _, k = case.shape
    pair, paths = case.pair, (stem.with_suffix(".a"), stem.with_suffix(".b"))
    try:
        if case.unit == "byte":
            a = fill(pair.a, (m, k), case.dtype, seed=pair.seed, side="a")
            _write(paths[0], a.matrix)
            return Matrices(a_path=paths[0], a=_state(a), b_path=None, b=None, fingerprint=None)
        a, b = fill_pair(pair, case.shape, case.dtype)
        _write(paths[0], a.matrix)
        _write(paths[1], b.matrix.T)
    except (OSError, MemoryError) as error:
        raise InputError(
            f"the matrices of {case} cannot be made",
            why=str(error) or "this host has too little memory",
            fix="take a smaller --shape, or make room",
        ) from error
    found = fingerprint(a.matrix, b.matrix, case.dtype)
    return Matrices(a_path=paths[0], a=_state(a), b_path=paths[1], b=_state(b), fingerprint=found)


class Filling:
    """Matrices of cases, filled ahead in the order in which they are taken."""

    def __init__(self, pool: ProcessPoolExecutor, folder: Path, ahead: int) -> None:
        self._pool, self._folder, self._ahead = pool, folder, ahead
        self._number = 0

    def of(self, cases: Iterable[InputCase]) -> Generator[tuple[InputCase, Future[Matrices]]]:
        """Each case with its matrices, as soon as they are wanted."""
        waiting: list[tuple[InputCase, Future[Matrices]]] = []
        for case in cases:
            self._number += 1
            stem = self._folder / f"{self._number}"
            waiting.append((case, self._pool.submit(fill_case, case, stem)))
            if len(waiting) > self._ahead:
                yield waiting.pop(0)
        yield from waiting


@contextmanager
def filling(folder: Path) -> Generator[Filling]:
    """Processes that fill matrices into a folder; they end at the end."""
    count = max(1, min(MOST_PROCESSES, (os.cpu_count() or 1) // 2))
    # Not forked: threads of libraries do not survive that.
    pool = ProcessPoolExecutor(count, get_context("spawn"), _ignore_interrupts)
    try:
        yield Filling(pool, folder, count)
    finally:
        pool.shutdown(cancel_futures=True)


def filled(case: InputCase, future: Future[Matrices]) -> Matrices:
    """The matrices of a case.

    Raises:
        InputError: they cannot be made.
    """
    try:
        return future.result()
    except BrokenExecutor as error:
        raise InputError(
            f"the process that fills the matrices of {case} was killed",
            why="perhaps by the kernel, for lack of memory",
            fix="take a smaller --shape",
        ) from error


def _ignore_interrupts() -> None:
    """Ctrl-C goes to all processes of a terminal; who measures ends these."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _state(filled: Filled) -> OperandState:
    return OperandState(non_finite=filled.non_finite, saturated=filled.saturated)


def _write(path: Path, matrix: Matrix) -> None:
    with path.open("wb") as file:
        np.ascontiguousarray(matrix).view(np.uint8).tofile(file)
