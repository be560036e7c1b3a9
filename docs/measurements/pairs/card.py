"""Counts of the bundled pairs, as the data card has them between its markers."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from advisor.core.records import DOUBTFUL, PairPoint, SoloPoint
from advisor_profiling.campaign.plan import kinds_of
from advisor_training.rows import KINDS, kinds_of as kinds_of_points

BEGIN = "<!-- counted by docs/measurements/pairs/bundle.py: begin -->"
END = "<!-- counted by docs/measurements/pairs/bundle.py: end -->"

LIMIT_PART = 0.95


def renewed(
    card: str,
    pairs: Sequence[PairPoint],
    references: Sequence[SoloPoint],
    profiles: Sequence[SoloPoint],
) -> str:
    """The card with the counts of these points between its markers.

    Args:
        card: Its text, with both markers.
        pairs: At least one.
        references: The jobs alone on the whole GPU in the runs of the pairs.
        profiles: The jobs alone at all shares.
    """
    before, _, rest = card.partition(BEGIN)
    _, _, after = rest.partition(END)
    parts = (
        basis(pairs, references),
        gpu_models(pairs, profiles),
        kinds_of_splits(pairs),
        kinds_of_jobs(pairs, profiles),
        flags(pairs),
    )
    return before + "\n\n".join([BEGIN, *parts, END]) + after


def basis(pairs: Sequence[PairPoint], references: Sequence[SoloPoint]) -> str:
    """How many there are of what, from when to when."""
    names = {point.jobs for point in pairs}
    started = sorted(point.started_at for point in (*pairs, *references))
    with_batch_2 = sum(any(job.endswith("-b2") for job in pair) for pair in names)
    cards = Counter(model for model, _ in {(p.gpu_model, p.gpu_uuid) for p in pairs})
    rows = [
        ("pair points (`pairs.jsonl`)", str(len(pairs))),
        ("of them without rates, since a job failed", str(sum(p.error is not None for p in pairs))),
        ("pairs", str(len(names))),
        ("of them a job beside itself", str(sum(a == b for a, b in names))),
        ("of them in more than one run", str(len(repeated(pairs)))),
        ("of them with a job at the paper's batch 2", str(with_batch_2)),
        ("jobs", str(len(jobs_of(pairs)))),
        ("references (`references.jsonl`)", str(len(references))),
        ("cards", ", ".join(f"{count} {model}" for model, count in sorted(cards.items()))),
        ("driver", ", ".join(sorted({p.driver or "not known" for p in pairs}))),
        ("points of each run", listed(Counter(p.run for p in pairs))),
        ("first and last window", f"{started[0][:19]}, {started[-1][:19]} UTC"),
        ("length of a window, s", spread(p.window_s for p in pairs)),
        ("settling before it, s", spread(p.settle_s for p in pairs if p.settle_s is not None)),
    ]
    return table(("what", "how many"), rows)


def gpu_models(pairs: Sequence[PairPoint], profiles: Sequence[SoloPoint]) -> str:
    """What there is of each GPU model; what is to be used passed every cross-check."""
    rows: list[tuple[str, ...]] = []
    for model in sorted({p.gpu_model for p in pairs}):
        found = [p for p in pairs if p.gpu_model == model]
        used = [p for p in found if DOUBTFUL.isdisjoint(p.flags)]
        alone = [p for p in profiles if p.gpu_model == model]
        right = [p for p in alone if DOUBTFUL.isdisjoint(p.flags)]
        counts = len(found), len(used), len({p.jobs for p in found}), len(jobs_of(found))
        cards, jobs = {p.gpu_uuid for p in found}, {p.job for p in alone}
        more = len(cards), len(alone), len(right), len(jobs)
        rows.append((model, *map(str, (*counts, *more))))
    headings = ("pair points", "of them to be used", "pairs", "jobs", "cards of the pairs")
    return table(
        ("GPU model", *headings, "profile points", "of them to be used", "profiled jobs"), rows
    )


def repeated(pairs: Iterable[PairPoint]) -> set[tuple[str, ...]]:
    """Pairs that were measured in more than one run."""
    runs = Counter(pair for pair, _ in {(point.jobs, point.run) for point in pairs})
    return {pair for pair, count in runs.items() if count > 1}


def kinds_of_splits(pairs: Sequence[PairPoint]) -> str:
    """Points and pairs at each kind of split."""
    found = kinds_of_points(pairs)
    points = Counter(found)
    names = {k: {p.jobs for p, kind in zip(pairs, found, strict=True) if kind == k} for k in points}
    rows = [(kind, str(points[kind]), str(len(names[kind]))) for kind in KINDS if kind in points]
    return table(("kind of split", "points", "pairs"), rows)


def kinds_of_jobs(pairs: Sequence[PairPoint], profiles: Sequence[SoloPoint]) -> str:
    """Jobs of each kind, and pairs of each two kinds."""
    kinds = {job: str(kind) for job, kind in kinds_of(profiles).items()}
    jobs: dict[str, list[str]] = {}
    for job in jobs_of(pairs):
        jobs.setdefault(kinds.get(job, "not known"), []).append(job)
    together = Counter(
        " with ".join(sorted(kinds.get(job, "not known") for job in pair))
        for pair in {point.jobs for point in pairs}
    )
    rows = [(kind, str(len(found)), ", ".join(found)) for kind, found in sorted(jobs.items())]
    beside = [(kinds_, str(count)) for kinds_, count in sorted(together.items())]
    return "\n\n".join(
        [table(("kind of job", "jobs", "names"), rows), table(("kinds of a pair", "pairs"), beside)]
    )


def flags(pairs: Sequence[PairPoint]) -> str:
    """Points under each flag."""
    counts = Counter(flag for point in pairs for flag in point.flags)
    most_first = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rows = [(f"`{flag}`", str(count)) for flag, count in most_first]
    throttled = [point for point in pairs if "throttled" in point.flags]
    at_limit = sum(
        (point.power_w or 0) >= LIMIT_PART * (point.power_limit_w or 0) > 0 for point in throttled
    )
    clean = sum(not point.flags for point in pairs)
    others = [(f"`throttled`, at {LIMIT_PART:.0%} of the power limit or more", str(at_limit))]
    return table(("flag", "points"), [*rows, ("none", str(clean)), *others])


def jobs_of(pairs: Iterable[PairPoint]) -> list[str]:
    """Names of the jobs."""
    return sorted({job for point in pairs for job in point.jobs})


def listed(counts: Counter[str]) -> str:
    """Names with their counts."""
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def spread(values: Iterable[float]) -> str:
    """Least, most and median; "-" where nothing is known."""
    found = sorted(values)
    if not found:
        return "-"
    return f"{found[0]:.1f} to {found[-1]:.1f}, median {statistics.median(found):.1f}"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
