"""A screen that may be longer than the terminal: as much as it holds, and how to see the rest."""

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

_DOWN, _UP = ("j", "\x1b[B"), ("k", "\x1b[A")
_PAGE_DOWN, _PAGE_UP = (" ", "\x1b[6~"), ("b", "\x1b[5~")


@dataclass(slots=True)
class Scrolled:
    """What is shown, from a line on.

    Attributes:
        whole: All of it.
        first: The line on top, counted from 0.
        room: Lines that the terminal had when it was drawn last.
    """

    whole: RenderableType = ""
    first: int = 0
    room: int = 0

    def press(self, keys: str) -> None:
        """Move by a key, as `less` does, or by arrows."""
        if keys in (*_DOWN, *_UP):
            self.first += 1 if keys in _DOWN else -1
        elif keys in (*_PAGE_DOWN, *_PAGE_UP):
            self.first += self.room if keys in _PAGE_DOWN else -self.room

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """What rich asks for."""
        lines = console.render_lines(self.whole, options.update(height=None), pad=False)
        fits = len(lines) <= console.height
        self.room = len(lines) if fits else max(1, console.height - 1)
        self.first = max(0, min(self.first, len(lines) - self.room))
        last = self.first + self.room
        for number, line in enumerate(lines[self.first : last]):
            yield from ([Segment.line()] if number else [])
            yield from line
        if not fits:
            told = f"lines {self.first + 1} to {last} of {len(lines)}: j and k move, q ends"
            yield Segment.line()
            yield Text(told, style="dim", end="")
