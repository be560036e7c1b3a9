"""A recommendation for programs, and what the power of its choice goes to for people."""

from functools import partial
from pathlib import Path

import typer

from advisor.core.records import SoloPoint
from advisor.settings import Settings
from advisor.wire.recommendation import Recommendation
from advisor_advice.answer import ModelAdvice
from advisor_advice.components import known_power_of, with_components
from advisor_advice.recommendation_wire import to_wire
from advisor_advice.site.known_profiles import ProfileSet
from advisor_cli.shared.power_bars import letters, print_parts
from advisor_data.files.files import read_points


def told(
    given: ModelAdvice, found: ProfileSet, settings: Settings, file: Path | None
) -> Recommendation:
    """The answer with the parts of its power, by weights that are fitted now.

    Args:
        given: What it tells.
        found: The profiles that it is made from.
        settings: Say where points are kept.
        file: Points beside those.
    """
    more = [p for p in read_points(file) if isinstance(p, SoloPoint)] if file else []
    known = partial(known_power_of, found, settings, more)
    return with_components(to_wire(given), given.recommendation, known)


def show(told: Recommendation) -> None:
    """Print them, or why there are none."""
    found = told.components
    if found is None:
        typer.echo(f"what the power goes to is not known: {told.components_unknown}")
        return
    typer.echo(f"what the power at {found.split} goes to; ~ estimated, ? extrapolated")
    typer.echo(letters())
    print_parts("split", [(found.split, found.power)])
    typer.echo(found.jostling)
