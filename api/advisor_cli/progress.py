"""Bars on a terminal that say how far it is; elsewhere there is nothing."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from advisor_cli.console import plain_console

Item = TypeVar("Item")


def progress(*columns: ProgressColumn) -> Progress:
    """A bar with these columns, else rich's own; in a log it would be a line for each state."""
    console = plain_console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def leaving_out(what: str) -> Generator[Callable[[str, int, int], None]]:
    """A bar of fits without a part of the data: its name, how many are done, and of how many."""
    text = TextColumn("{task.description}", markup=False)
    with progress(text, BarColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task(f"leaving out {what}")
        yield lambda name, done, total: bar.update(
            task, description=f"fitted without {name}", completed=done, total=total
        )


def counted(items: Iterable[Item], total: int, name: str) -> Iterator[Item]:
    """The items as they are asked for; on a terminal a bar says how many are left, and how long."""
    with progress(
        SpinnerColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{name}, left"),
        TimeRemainingColumn(),
        TextColumn("after"),
        TimeElapsedColumn(),
    ) as bar:
        task = bar.add_task("", total=total)
        for item in items:
            yield item
            bar.advance(task)
