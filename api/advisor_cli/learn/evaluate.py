"""`advisor evaluate`: how good the model is for jobs that it has not seen."""

from pathlib import Path
from typing import Annotated

import typer

from advisor.errors import InputError
from advisor_cli.console import AsJson, WithBundled


def evaluate(
    tables: Annotated[
        list[str] | None, typer.Argument(help="With --public: these tables only", metavar="TABLE")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for page and JSON")] = Path("report"),
    pairs: Annotated[
        Path | None, typer.Option(help="Pair points; else those that come with advisor")
    ] = None,
    solo: Annotated[
        Path | None, typer.Option(help="Solo points; else those that come with advisor")
    ] = None,
    with_bundled: WithBundled = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="The model, physics and the paper's method, by workload")
    ] = False,
    against: Annotated[
        bool,
        typer.Option(
            "--check", help="As --quick; fails where a figure is worse than the bundled ones"
        ),
    ] = False,
    local: Annotated[
        bool,
        typer.Option("--own", help="The model in use, on the pairs measured here; writes nothing"),
    ] = False,
    public: Annotated[
        bool,
        typer.Option("--public", help="Shipped answers on tables that others measured, and rules"),
    ] = False,
    clones: Annotated[
        Path | None,
        typer.Option("--from", help="Folder with clones of tables that may not be passed on"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """How good is the model? Writes evaluation.html and evaluation.json.

    Every pair is predicted by learners that were fitted without it, or without its jobs.

    Example: advisor evaluate --quick
    """
    if (tables or clones) and not public:
        raise InputError("tables and --from go with --public only", fix="add --public")
    if local + public + (quick or against or with_bundled) > 1:
        raise InputError(
            "--own and --public each answer another question",
            fix="--own goes with --pairs and --solo, --public with tables and --from",
        )
    # As late as that: they load scikit-learn, which a wrong option needs not wait for.
    from advisor_cli.learn import evaluation

    if public:
        evaluation.show_public(tables or (), clones, as_json=as_json)
        return
    if local:
        evaluation.show_local(pairs, solo, as_json=as_json)
        return
    evaluation.show(
        out,
        pairs,
        solo,
        with_bundled=with_bundled,
        quick=quick or against,
        against=against,
        as_json=as_json,
    )
