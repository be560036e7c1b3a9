"""Words of messages."""


def count_of(count: int, thing: str) -> str:
    """So many of a thing, whose plural ends in s."""
    return f"1 {thing}" if count == 1 else f"{count} {thing}s"
