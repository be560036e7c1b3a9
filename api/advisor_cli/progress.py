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
def leaving_out() -> Generator[Callable[[str], Callable[[str, int, int], None]]]:
    """A bar for each named stage of fits without a part of the data.

    A stage takes the name of that part, how many fits are done, and of how many.
    """
    text = TextColumn("{task.description}", markup=False)
    with progress(text, BarColumn(), TimeRemainingColumn()) as bar:

        def on_stage(name: str) -> Callable[[str, int, int], None]:
            task = bar.add_task(name, total=None)
            return lambda left_out, done, total: bar.update(
                task, description=f"{name}, without {left_out}", completed=done, total=total
            )

        yield on_stage


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
