"""`advisor power components`: what the power of a job, or of two jobs together, goes to."""

from typing import Annotated

import typer

from advisor.errors import InputError
from advisor.formats.wire import write
from advisor.settings import read_settings
from advisor_advice.components import components_of_job, components_of_pair
from advisor_cli.power import components_text
from advisor_cli.shared.options import AsJson, GpuModelOption


def components(
    job: Annotated[str, typer.Argument(help="Name of a profiled job", metavar="A")],
    other: Annotated[
        str | None,
        typer.Argument(help="A second job, with --splits; may be the same", metavar="[B]"),
    ] = None,
    splits: Annotated[
        bool, typer.Option("--splits", help="Both jobs on one GPU, at each split")
    ] = False,
    gpu_model: GpuModelOption = None,
    as_json: AsJson = False,
) -> None:
    """What the power of a GPU goes to: floor, classes of SM work, fabric and memory.

    Of one job at each share of its profile. Of two jobs with --splits: measured ones, else as the
    model in use predicts them, and who lowers the clock where the power limit is reached.
    """
    _check_asked(job, other, splits=splits)
    settings = read_settings()
    if other is None:
        of_job = components_of_job(job, settings, gpu_model)
        typer.echo(write(of_job)) if as_json else components_text.show_job(of_job)
        return
    of_pair = components_of_pair(job, other, settings, gpu_model)
    typer.echo(write(of_pair)) if as_json else components_text.show_pair(of_pair)


def _check_asked(job: str, other: str | None, *, splits: bool) -> None:
    if splits and other is None:
        raise InputError(
            "--splits needs a second job", fix=f"advisor power components {job} OTHER --splits"
        )
    if other is not None and not splits:
        raise InputError(
            f"{job} and {other} are two jobs",
            why="two jobs share a GPU at a split",
            fix=f"advisor power components {job} {other} --splits",
        )
