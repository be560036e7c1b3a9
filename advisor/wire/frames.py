"""Answers and points as pandas frames; pandas is imported on the first call.

A cell is a number or a text. The bounds of an interval have columns of their own (`power_w`,
`power_low_w`, `power_high_w`), and so do the values of each job (`rate_1`, `rate_2`).
"""

import dataclasses
import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from advisor.core.interval import Interval
from advisor.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_UNITS = {"percent", "mib", "ms", "w", "stderr", "hash"}
"""Last words of a column name, which stay last when `column` adds a word."""


class Tabular(ABC):
    """An answer with one row for each way, copy count, partner or point."""

    __slots__ = ()

    @abstractmethod
    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows of the frame, as cells by column name."""

    def to_frame(self) -> "pd.DataFrame":
        """The rows as a pandas frame.

        Raises:
            InputError: pandas is not installed.
        """
        return frame(self.rows())


def frame(rows: Iterable[Mapping[str, Any]]) -> "pd.DataFrame":
    """Rows as a pandas frame.

    Raises:
        InputError: pandas is not installed.
    """
    with InputError.instead_of(
        ImportError, "a data frame needs pandas, which is not installed", fix="pip install pandas"
    ):
        pandas: Any = importlib.import_module("pandas")
    return pandas.DataFrame.from_records(list(rows))


def row_of(value: Any) -> dict[str, Any]:
    """A dataclass as a row; mappings are left out, since they are no cells."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        name, cell = field.name, getattr(value, field.name)
        if isinstance(cell, Interval):
            found[name] = cell.value
            found |= {column(name, "low"): cell.low, column(name, "high"): cell.high}
        elif name == "jobs":
            for number, part in enumerate(cell, start=1):
                found |= {column(word, str(number)): v for word, v in row_of(part).items()}
        elif isinstance(cell, tuple):
            found[name] = "; ".join(cast("tuple[str, ...]", cell))
        elif dataclasses.is_dataclass(cell):
            found[name] = getattr(cell, "text", None)
        elif not isinstance(cell, Mapping):
            found[name] = cell
    return found


def column(name: str, word: str) -> str:
    """A name with one more word before its unit: `share_1_percent` of `share_percent`."""
    head, _, end = name.rpartition("_")
    return f"{head}_{word}_{end}" if end in _UNITS else f"{name}_{word}"
