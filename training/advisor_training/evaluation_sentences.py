"""What the evaluation says, in sentences; every number in them is computed."""

from advisor.objectives import PER_WATT_OBJECTIVE
from advisor.wording import count_of
from advisor_training.evaluation_methods import HEADLINE, OURS, PAPER, PHYSICAL
from advisor_training.evaluation_protocols import BY_WORKLOAD
from advisor_training.evaluation_tables import find_choices
from advisor_training.evaluation_values import Evaluation


def headline(evaluation: Evaluation) -> str:
    """How much of the best measured split an unseen job gets."""
    found = find_choices(evaluation, OURS, PER_WATT_OBJECTIVE)
    if not found:
        return "No choice could be scored."
    return (
        f"For jobs that it has not seen, the model's split does {found.mean_percent:.1f} % of the "
        f"work per joule of the best measured one; a tenth of its choices does less than "
        f"{found.p10_percent:.1f} %, the worst {found.worst_percent:.1f} %."
    )


def compared(evaluation: Evaluation) -> str:
    """The other ways to choose, in the same measure."""
    others = ((PAPER, "the paper's method"), (PHYSICAL, "physics without learning"),
              ("larger-rate", "90 % for the larger raw rate"), ("equal", "50/50"),
              ("exclusive", "one after the other"), ("uncapped", "no limits"))  # fmt: skip
    parts = [
        f"{words} {' and '.join(f'{f.mean_percent:.1f} %' for f in figures if f)}"
        for method, words in others
        if any(figures := [find_choices(evaluation, method, name) for name in HEADLINE])
    ]
    raw = find_choices(evaluation, OURS, HEADLINE[1])
    ours = f"; by {HEADLINE[1]} the model reaches {raw.mean_percent:.1f} %" if raw else ""
    return f"By {HEADLINE[0]}, then by {HEADLINE[1]}: {', '.join(parts)}{ours}."


def accuracy(evaluation: Evaluation) -> str:
    """How far the model's numbers lie from the measured ones, and how often the intervals hold."""
    errors = next(
        row.errors
        for row in evaluation.errors
        if (row.protocol, row.method, row.splits, row.pairs) == (BY_WORKLOAD, OURS, "nine", "all")
    )
    parts = [
        f"{words} by {error.mean_percent:.1f} % (median {error.median_percent:.1f} %)"
        for words, error in (("rates", errors.rate), ("power", errors.power))
        if error
    ]
    held = [f"{100 * found.overall:.0f} % of {name}" for name, found in evaluation.coverage.items()]
    return (
        f"It misses {' and '.join(parts)} at the nine splits. Its intervals for "
        f"{evaluation.wanted_coverage:.0%} hold {' and '.join(held)}."
    )


def basis(evaluation: Evaluation) -> str:
    """What this rests on."""
    found = evaluation.basis
    return (
        f"{count_of(found.splits, 'split')} of {count_of(found.pairs, 'pair')} of "
        f"{count_of(found.jobs, 'job')} on {count_of(found.cards, 'card')} of "
        f"{', '.join(found.gpu_models)}; {found.launch_bound_pairs} of the pairs have a "
        "launch-bound job."
    )


def other_gpus(evaluation: Evaluation) -> str:
    """How far the model carries to a GPU model that it has not learned from."""
    if not evaluation.gpus:
        return (
            "These pairs do not tell how good it is on another GPU model: leaving one out takes "
            "pairs of two."
        )
    parts = [
        f"{found.fractions[PER_WATT_OBJECTIVE].mean_percent:.1f} % on the {found.left_out} (worst "
        f"{found.fractions[PER_WATT_OBJECTIVE].worst_percent:.1f} %)"
        for found in evaluation.gpus
        if PER_WATT_OBJECTIVE in found.fractions
    ]
    return (
        f"Learned from the other GPU models only, and without the job, it does {', '.join(parts)} "
        "of the best measured split's work per joule."
    )


def said(evaluation: Evaluation) -> list[str]:
    """What stands above the tables, line by line."""
    lines = [f(evaluation) for f in (headline, compared, accuracy, basis)]
    return lines if evaluation.quick else [*lines, other_gpus(evaluation)]
