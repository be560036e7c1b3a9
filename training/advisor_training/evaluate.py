"""The whole evaluation: every method under every protocol."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from advisor.objectives import OBJECTIVES
from advisor_training import carrying_over
from advisor_training.conformal import (
    COVERAGE,
    measured_coverage,
    power_residuals,
    speed_residuals,
)
from advisor_training.evaluation_bars import bars_by_job, by_group, by_job
from advisor_training.evaluation_choices import (
    RULES,
    Choice,
    Scope,
    choose_by_rule,
    figures_of,
    keys_of,
)
from advisor_training.evaluation_curve import curve, curve_fits
from advisor_training.evaluation_data import Data
from advisor_training.evaluation_errors import compare
from advisor_training.evaluation_gpu import leave_gpus_out
from advisor_training.evaluation_methods import (
    HEADLINE,
    OURS,
    PHYSICAL,
    Method,
    Told,
    ask,
    methods,
)
from advisor_training.evaluation_protocols import (
    BOTH_UNSEEN,
    BY_GPU_MODEL,
    BY_PAIR,
    BY_WORKLOAD,
    PROTOCOLS,
    RANDOM_ROWS,
    Tick,
)
from advisor_training.evaluation_values import Basis, ChoiceRow, ErrorRow, Evaluation, Some
from advisor_training.noise import noise_ceiling

CURVE = "with more data"
OTHER_GPU = "on another GPU model"

Watch: TypeAlias = Callable[[str, str], None]
"""Takes the protocol and the method after each fit."""


def run_evaluation(data: Data, *, quick: bool, watch: Watch) -> Evaluation:
    """Run the protocols.

    Args:
        data: The measured pairs.
        quick: The model and physics only, by workload.
        watch: Told of every fit.

    Raises:
        InputError: too few pairs to leave some out.
    """
    every = methods(data)
    told = {
        (protocol, name): ask(
            every[name], data, PROTOCOLS[protocol].answer, _tick(watch, protocol, name)
        )
        for protocol, name in _asked(data, every, quick=quick)
    }
    ours = told[BY_WORKLOAD, OURS]
    chosen = {name: ours.choices(data, name) for name in HEADLINE}
    unseen = ours.speeds.unseen
    return Evaluation(
        quick=quick,
        basis=_basis(data),
        ceilings={o.name: noise_ceiling(data.pairs, o) for o in OBJECTIVES.values()},
        choices=tuple(_choice_rows(data, told)),
        errors=tuple(_error_rows(data, told)),
        wanted_coverage=COVERAGE,
        coverage={
            "speed": measured_coverage(speed_residuals(data.rows, unseen)),
            "power": measured_coverage(power_residuals(data.rows, unseen)),
        },
        training_s={name: t.training_s for (p, name), t in told.items() if p == BY_WORKLOAD},
        jobs=by_job(data, unseen, chosen),
        job_gains={name: _job_gains(data, told, name) for name in HEADLINE},
        groups=by_group(data, chosen),
        curve=()
        if quick
        else tuple(curve(data, _curved(every), lambda name: _tick(watch, CURVE, name))),
        **_other_gpus(data, quick, _tick(watch, OTHER_GPU, OURS)),
        chosen={name: tuple(found) for name, found in chosen.items()},
        compared=compare(data, unseen, (data.rows.kind == "nine")[unseen.row]),
    )


def planned_fits(data: Data, *, quick: bool) -> dict[tuple[str, str], int]:
    """How many fits an evaluation takes, by protocol and method, in the order of its work."""
    every = methods(data)
    fits = {
        (protocol, name): PROTOCOLS[protocol].fits(data.rows) * every[name].fits
        for protocol, name in _asked(data, every, quick=quick)
    }
    if quick:
        return fits
    fits |= {(CURVE, name): n for name, n in curve_fits(_curved(every)).items()}
    others = carrying_over.fits(data.rows)
    return fits | ({(OTHER_GPU, OURS): others} if others else {})


def _asked(data: Data, every: Mapping[str, Method], *, quick: bool) -> list[tuple[str, str]]:
    """Which method is asked under which protocol; by GPU model only where there are several."""
    if quick:
        return [(BY_WORKLOAD, name) for name in (OURS, PHYSICAL)]
    several = [BY_GPU_MODEL] if carrying_over.gpu_models(data.rows) else []
    shared = [(protocol, name) for protocol in (BY_WORKLOAD, *several, BY_PAIR, RANDOM_ROWS)
              for name in every]  # fmt: skip
    return [*shared, (BOTH_UNSEEN, OURS)]


def _other_gpus(data: Data, quick: bool, tick: Tick) -> dict[str, Any]:
    found = [] if quick else list(leave_gpus_out(data, tick))
    return {
        "gpus": tuple(figures for figures, _ in found),
        "gpu_curve": tuple(point for _, points in found for point in points),
    }


def _curved(every: Mapping[str, Method]) -> list[Method]:
    """Those that learn, so more data can help."""
    return [method for name, method in every.items() if name != PHYSICAL]


def _tick(watch: Watch, protocol: str, method: str) -> Tick:
    return lambda: watch(protocol, method)


def _subsets(data: Data) -> dict[Some, frozenset[int]]:
    """Numbers of the measurements of each subset."""
    bound = data.with_launch_bound()
    return {
        "all": frozenset(range(len(bound))),
        "with a launch-bound job": frozenset(np.flatnonzero(bound).tolist()),
        "without": frozenset(np.flatnonzero(~bound).tolist()),
    }


def _choice_rows(data: Data, told: Mapping[tuple[str, str], Told]) -> Iterator[ChoiceRow]:
    for (protocol, name), answers in told.items():
        sums_only = answers.method.sums_only
        for objective in OBJECTIVES if protocol == BY_WORKLOAD else HEADLINE:
            # A learner of sums does not know the slower job, nor what uncapped comes to.
            if not (sums_only and objective == "max-min"):
                found = answers.choices(data, objective)
                yield from _rows(data, protocol, name, objective, "nine", found)
            if name == OURS and objective in HEADLINE:
                wider = answers.choices(data, objective, "every way")
                yield from _rows(data, protocol, name, objective, "every way", wider)
    keys = keys_of(told[BY_WORKLOAD, OURS].choices(data, HEADLINE[0]))
    for rule in RULES:
        for objective in OBJECTIVES.values():
            found = choose_by_rule(data, keys, rule, objective, "nine")
            yield from _rows(data, BY_WORKLOAD, rule, objective.name, "nine", found)


def _job_gains(
    data: Data, told: Mapping[tuple[str, str], Told], objective: str
) -> dict[str, tuple[float, ...]]:
    """By method, for the jobs in whose pairs 50/50 is worth anything."""
    found: dict[str, tuple[float, ...]] = {}
    for (protocol, name), answers in told.items():
        if protocol == BY_WORKLOAD:
            bars = bars_by_job(data, {objective: answers.choices(data, objective)}).values()
            gains = [bar[objective].gain_percent for bar in bars]
            found[name] = tuple(gain for gain in gains if gain is not None)
    return found


def _rows(
    data: Data, protocol: str, method: str, objective: str, scope: Scope, found: Sequence[Choice]
) -> Iterator[ChoiceRow]:
    """A row for each subset of the pairs that has choices."""
    for pairs, numbers in _subsets(data).items():
        if figures := figures_of([choice for choice in found if choice.number in numbers]):
            yield ChoiceRow(
                protocol=protocol,
                method=method,
                objective=objective,
                scope=scope,
                pairs=pairs,
                figures=figures,
            )


def _error_rows(data: Data, told: Mapping[tuple[str, str], Told]) -> Iterator[ErrorRow]:
    for (protocol, name), answers in told.items():
        kinds = ("nine",) if answers.method.sums_only else ("nine", "uncapped")
        for splits in kinds:
            for pairs, numbers in _subsets(data).items():
                which = (data.rows.kind == splits) & np.isin(data.rows.measurement, [*numbers])
                errors = answers.errors(data, which)
                if errors.rows:
                    yield ErrorRow(
                        protocol=protocol, method=name, splits=splits, pairs=pairs, errors=errors
                    )


def _basis(data: Data) -> Basis:
    return Basis(
        gpu_models=tuple(sorted({m.gpu_model for m in data.measurements})),
        cards=len({m.gpu_uuid for m in data.measurements}),
        jobs=len(data.rows.jobs),
        pairs=len(data.pairs),
        launch_bound_pairs=len(
            {
                (m.job_a, m.job_b, m.gpu_model)
                for m, bound in zip(data.measurements, data.with_launch_bound(), strict=True)
                if bound
            }
        ),
        measurements=len(data.measurements),
        splits=len(data.rows),
        left_out=data.left_out,
    )
