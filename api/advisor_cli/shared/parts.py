"""Parts of a whole, as people write them: 0.03, or 3%."""

from advisor.errors import InputError


def parse_gain(value: str | float) -> float:
    """A least gain: `0.03`, or `3%`; typer hands its default in as it is.

    Raises:
        InputError: it is neither, or cannot be meant.
    """
    text = str(value)
    percent = text.removesuffix("%")
    try:
        gain = float(percent) / (100 if percent != text else 1)
    except ValueError as error:
        raise InputError(f"{text!r} is not a gain", fix="write 0.03, or 3%") from error
    if not 0 <= gain < 1:
        asked = f"did you mean {text}%? " if 1 <= gain <= 50 else ""
        raise InputError(
            f"a least gain of {text} is not possible",
            why="1 is all of the energy or time that the jobs take",
            fix=f"{asked}write a part such as 0.03, or 3%",
        )
    return gain
