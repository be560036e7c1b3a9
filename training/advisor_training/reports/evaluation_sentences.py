"""What the evaluation says, in sentences; every number in them is computed."""

from advisor.core.objectives import DEFAULT_OBJECTIVE
from advisor.core.wording import count_of
from advisor_training.evaluation.choices import QUESTIONS
from advisor_training.evaluation.methods import HEADLINE, OURS, PAPER, PHYSICAL
from advisor_training.evaluation.rows import Some
from advisor_training.evaluation.values import Evaluation, errors_of_all_pairs, find_choices
from advisor_training.learn.bootstrap import BootstrapEstimate
from advisor_training.learn.protocols import BY_WORKLOAD


def headline(evaluation: Evaluation) -> str:
    """What sharing as advised saves for a job that was not seen."""
    found = find_choices(evaluation, OURS, DEFAULT_OBJECTIVE)
    if not found:
        return "No choice could be scored."
    return (
        f"In {found.choices} choices for {count_of(found.pairs, 'pair')} of {found.jobs} jobs, one "
        f"of which it has not seen, the model saves {_between(found.saved)} of the energy for the "
        f"same work (median {found.saved_median.value:.1f} %), one after the other "
        f"where sharing does not pay; {found.loses.value:.0f} % of the choices cost more energy. "
        f"Work is done {found.stp.value:.2f} times as fast, the slower job runs at "
        f"{found.slower.value:.0f} % of its speed alone."
    )


def compared(evaluation: Evaluation) -> str:
    """The other ways to choose, in the same measure."""
    others = ((PHYSICAL, "physics without learning"), ("equal", "50/50"),
              ("uncapped", "no limits"), (PAPER, "the paper's method"),
              ("larger-rate", "90 % for the larger raw rate"))  # fmt: skip
    parts = [
        f"{words} {found.saved.value:+.1f} % (costs more in {found.loses.value:.0f} %)"
        for method, words in others
        if (found := find_choices(evaluation, method, DEFAULT_OBJECTIVE))
    ]
    ours = [
        f"{found.mean_percent:.1f} % by {name}"
        for name in HEADLINE
        if (found := find_choices(evaluation, OURS, name))
    ]
    return f"In the same pairs: {', '.join(parts)}. Of the oracle it reaches {', '.join(ours)}."


def servers(evaluation: Evaluation) -> str:
    """What of that is servers."""
    ways: tuple[tuple[str, Some], ...] = (
        ("with a server", "with a server"),
        ("without", "without a server"),
    )
    parts = [
        f"{words} {_between(found.saved)} ({found.choices} choices, {found.pairs} pairs, "
        f"{found.jobs} jobs; missed {found.missed.value if found.missed else 0:.0f} %)"
        for words, pairs in ways
        if (found := find_choices(evaluation, OURS, DEFAULT_OBJECTIVE, pairs))
    ]
    return f"It saves {', '.join(parts)}." if parts else ""


def accuracy(evaluation: Evaluation) -> str:
    """How far the model's numbers lie from the measured ones, and how often the intervals hold."""
    errors = errors_of_all_pairs(evaluation)[BY_WORKLOAD, OURS]
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


def kept_limits(evaluation: Evaluation) -> str:
    """How often a job is slower than it was to be."""
    least = QUESTIONS[DEFAULT_OBJECTIVE].min_speed
    wanted = (BY_WORKLOAD, OURS, least, "as advised")
    for row in evaluation.limits:
        of = (row.protocol, row.method, row.min_speed, row.kept)
        if of == wanted and row.missed:
            return (
                f"Of the choices that share, {_between(row.missed)} leave a job below "
                f"{least:g} of its speed, or a server below all of its demand."
            )
    return "No choice shares the GPU."


def basis(evaluation: Evaluation) -> str:
    """What this rests on."""
    found = evaluation.basis
    return (
        f"{count_of(found.splits, 'split')} of {count_of(found.pairs, 'pair')} of "
        f"{count_of(found.jobs, 'job')} on {count_of(found.cards, 'card')} of "
        f"{', '.join(found.gpu_models)}; {found.launch_bound_pairs} of the pairs have a "
        "launch-bound job. Brackets are 95 % intervals by a bootstrap over jobs."
    )


def other_gpus(evaluation: Evaluation) -> str:
    """How far the model carries to a GPU model that it has not learned from."""
    if not evaluation.gpus:
        return (
            "These pairs do not tell how good it is on another GPU model: leaving one out takes "
            "pairs of two."
        )
    parts = [
        f"{_between(found.fractions[DEFAULT_OBJECTIVE].saved)} on the {found.left_out} "
        f"({found.fractions[DEFAULT_OBJECTIVE].mean_percent:.1f} % of the oracle)"
        for found in evaluation.gpus
        if DEFAULT_OBJECTIVE in found.fractions
    ]
    return (
        f"Learned from the other GPU models only, and without the job, it saves {', '.join(parts)}."
    )


def said(evaluation: Evaluation) -> list[str]:
    """What stands above the tables, line by line."""
    lines = [f(evaluation) for f in (headline, servers, compared, kept_limits, accuracy, basis)]
    return lines if evaluation.quick else [*lines, other_gpus(evaluation)]


def _between(found: BootstrapEstimate) -> str:
    return f"{found.value:.1f} % [{found.low:.1f} {found.high:.1f}]"
