"""Answers and points as tables, for those who analyse them; pandas is loaded when it is asked for.

A cell is a number or a text. Bounds of a range stand in columns of their own (`power_w`,
`power_low_w`, `power_high_w`), and so does what each of several jobs has (`rate_1`, `rate_2`).
"""

import contextlib
import dataclasses
import importlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from advisor.core.interval import Interval
from advisor.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_ENDS = {"percent", "mib", "ms", "w", "stderr", "hash"}
"""A word that is put into a name stands before these last ones."""


class Tabular(ABC):
    """An answer that is a table, too."""

    __slots__ = ()

    @abstractmethod
    def rows(self) -> Iterator[dict[str, Any]]:
        """What stands in the table, a row for each way of which the answer tells."""

    def to_frame(self) -> "pd.DataFrame":
        """The table as a pandas frame.

        Raises:
            InputError: pandas is not installed.
        """
        return frame(self.rows())

    def _repr_html_(self) -> str | None:
        """The table, at the end of a cell of a notebook; None: pandas is not installed."""
        with contextlib.suppress(InputError):
            return cast("Any", self.to_frame())._repr_html_()
        return None


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
    """A dataclass as a row; variables and values by name, which are no cells, are left out."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        name, cell = field.name, getattr(value, field.name)
        if isinstance(cell, Interval):
            found[name] = cell.value
            found |= {_bound(name, "low"): cell.low, _bound(name, "high"): cell.high}
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


def column(name: str, word: str, ends: Collection[str] = _ENDS) -> str:
    """A name with one more word, before its unit: `share_1_percent` of `share_percent`."""
    head, _, end = name.rpartition("_")
    return f"{head}_{word}_{end}" if end in ends else f"{name}_{word}"


def _bound(name: str, word: str) -> str:
    return column(name, word, _ENDS | {"j"})
