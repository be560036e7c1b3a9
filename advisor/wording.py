"""Words of messages."""

from collections.abc import Iterable


def count_of(count: int, thing: str) -> str:
    """So many of a thing, whose plural ends in s."""
    return f"1 {thing}" if count == 1 else f"{count} {thing}s"


def listed(things: Iterable[object]) -> str:
    """Things as people list them: `1, 2 and 3`; empty where there are none."""
    *first, last = [*map(str, things)] or [""]
    return f"{', '.join(first)} and {last}" if first else last
