"""An audit from beginning to end: read, survey, pack, add up."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import IO

from advisor.core.objectives import NO_PRICES, Aim, Prices
from advisor.decide.limits import Request, with_card_memory
from advisor.errors import InputError
from advisor.formats.moments import now, to_text
from advisor.predict.profiles import Profile
from advisor_audit.kinds import SeenKind, Survey
from advisor_audit.packing import ALL, SLOT_S, Packer, Walk, Walked, make_packer
from advisor_audit.phases import Segment
from advisor_audit.ranges import WORLDS, saved
from advisor_audit.reading import Pages, Source, read_all
from advisor_audit.result import Audit, AuditTotals, Hours, ReadSpan, not_seen, to_prove
from advisor_models.one_window import OneWindowHead

_FEWEST_SLOTS = 96

SAMPLE = 12
"""Slots that are packed in each world."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is asked for.

    Attributes:
        within: Label of who may share with whom, or `all`.
        known: Profiles that the store has, by GPU model and job.
    """

    head: OneWindowHead
    within: str = "namespace"
    objective: Aim = "energy-efficiency"
    limits: Request = field(default_factory=Request)
    prices: Prices = NO_PRICES
    known: Mapping[tuple[str, str], Profile] = field(default_factory=dict[tuple[str, str], Profile])


TellProgress = Callable[[str, int, int], None]
"""Called with what is done, how much of it, and how much there is."""


def audit(
    source: Source,
    folder: Path,
    wanted: Wanted,
    on_progress: TellProgress,
    keep: IO[bytes] | None = None,
) -> Audit:
    """Read a source, or go on reading it, and say what sharing would give.

    Args:
        source: Of the series.
        folder: Where pages are kept until the audit is done.
        wanted: What is asked for.
        on_progress: Told how far it is.
        keep: A file that gets every series that is read.

    Raises:
        SourceError: the source is gone, or answers nonsense.
        InputError: limits or prices that cannot be meant, or nobody held a GPU.
    """
    label = "namespace" if wanted.within == ALL else wanted.within
    pages = read_all(source, label, folder, lambda n, of: on_progress("reading", n, of), keep)
    survey, hours = _surveyed(pages, wanted, on_progress)
    if not survey.seen:
        # Or the same command would tell the same again, whatever has begun since.
        for file in folder.iterdir():
            file.unlink()
        raise InputError(
            "no job was seen on any GPU", fix="ask for other days, or see that the exporter runs"
        )
    span_s = source.end_s - source.begin_s
    # Shorter where little was read.
    slot_s = min(SLOT_S, max(source.step_s, span_s / _FEWEST_SLOTS))
    every = max(1, round(span_s / slot_s / SAMPLE))
    walk = _packed(pages, survey, wanted, Walked(slot_s, every), on_progress)
    totals = AuditTotals(
        survey=survey,
        packers=walk.packers,
        walked=walk.walked,
        hours=hours,
        prices=wanted.prices,
        saved=saved(walk.walked, walk.packers, _told(worlds_of(walk, wanted), on_progress)),
    )
    return _answer(source, wanted, totals, len(pages.mig()))


def _answer(source: Source, wanted: Wanted, totals: AuditTotals, mig: int) -> Audit:
    strays = source.asked.strays
    left_out = f"{strays:,} samples are left out: their times are over a year off the others"
    begin, end = (to_text(datetime.fromtimestamp(s, UTC)) for s in (source.begin_s, source.end_s))
    held, jobs = totals.now(), totals.jobs()
    return Audit(
        made_at=now(),
        span=ReadSpan(
            source=source.url,
            begin=begin,
            end=end,
            step_s=source.step_s,
            slot_s=totals.walked.slot_s,
            within=wanted.within,
            objective=wanted.objective,
            min_speed=wanted.limits.policy.min_speed,
            requests=source.asked.requests,
            received_bytes=source.asked.received_bytes,
            waits=source.asked.waits,
        ),
        now=held,
        shared=totals.shared(held),
        sets=totals.sets(),
        jobs=jobs,
        left_out=len(totals.survey.seen) - len(jobs),
        profile_next=totals.profile_next(),
        not_seen=(*([left_out] if strays else []), *not_seen(totals, mig)),
        to_prove=tuple(to_prove(totals.walked.slot_s)),
    )


def _surveyed(pages: Pages, wanted: Wanted, on_progress: TellProgress) -> tuple[Survey, Hours]:
    """All jobs, and what the GPUs did."""
    survey, hours = Survey(known=wanted.known), Hours()
    for page in range(len(pages.pages)):
        segments = [*pages.segments(page)]
        survey.add_page(segments)
        hours.add_page(segments)
        on_progress("finding jobs", page + 1, len(pages.pages))
    return survey, hours


def _packed(
    pages: Pages, survey: Survey, wanted: Wanted, walked: Walked, on_progress: TellProgress
) -> Walk:
    """Through all pages once more, slot by slot."""
    read = (one for page in range(len(pages.pages)) for one in pages.segments(page))
    walk = walk_of(read, survey, wanted, walked)
    for page, (begin_s, end_s) in enumerate(pages.pages):
        walk.page(pages.segments(page), begin_s, end_s)
        on_progress("packing", page + 1, len(pages.pages))
    return walk


def walk_of(read: Iterable[Segment], survey: Survey, wanted: Wanted, walked: Walked) -> Walk:
    """What packs the segments that were surveyed, slot by slot.

    Raises:
        InputError: limits or prices that cannot be meant.
    """
    kinds = _kinds(read, survey)
    numbers = {kind: n for of_model in kinds.values() for n, kind in enumerate(of_model)}
    profiles = {model: survey.profiles(of, wanted.head) for model, of in kinds.items()}
    return Walk(survey, _packers(kinds, profiles, survey, wanted), numbers, wanted.within, walked)


def _kinds(read: Iterable[Segment], survey: Survey) -> dict[str, list[SeenKind]]:
    """Of each GPU model, in a fixed order."""
    found: set[SeenKind] = set()
    for one in read:
        kind = survey.kind_of(one) if one.owner not in survey.several else None
        if kind:
            found.add(kind)
            survey.count(one, kind)
    return {model: [*of] for model, of in groupby(sorted(found), lambda kind: kind.model)}


def _told(
    worlds: Iterable[dict[str, Packer]], on_progress: TellProgress
) -> Iterator[dict[str, Packer]]:
    for number, world in enumerate(worlds, 1):
        yield world
        on_progress("drawing ranges", number, WORLDS)


def worlds_of(walk: Walk, wanted: Wanted) -> Iterator[dict[str, Packer]]:
    """Packers of what jobs might be, of each world."""
    kinds = {model: packer.kinds for model, packer in walk.packers.items()}
    guesses = {model: walk.survey.guesses(of, wanted.head) for model, of in kinds.items()}
    for world in range(WORLDS):
        profiles = {model: guess(world) for model, guess in guesses.items()}
        yield _packers(kinds, profiles, walk.survey, wanted)


def _packers(
    kinds: Mapping[str, Sequence[SeenKind]],
    profiles: Mapping[str, Sequence[Profile]],
    survey: Survey,
    wanted: Wanted,
) -> dict[str, Packer]:
    return {m: _packer(m, of, survey, wanted, profiles[m]) for m, of in kinds.items()}


def _packer(
    model: str,
    kinds: Sequence[SeenKind],
    survey: Survey,
    wanted: Wanted,
    profiles: Sequence[Profile],
) -> Packer:
    limits = with_card_memory(wanted.limits, model)
    if limits.memory_mib is None:
        limits = replace(limits, memory_mib=survey.memory_mib(model))
    return make_packer(
        kinds,
        profiles,
        survey.idle_power_w(model),
        wanted.objective,
        limits,
        wanted.prices,
    )
