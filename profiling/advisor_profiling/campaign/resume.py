"""Goes on with a campaign: what of it is measured already, on this card or whole on another."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from advisor.core.gpu import Gpu
from advisor.core.records import PairPoint, Point, SoloPoint
from advisor_profiling.campaign.blocks import Block, remaining
from advisor_profiling.window.points import pair_mode
from advisor_profiling.window.targets import Target

WindowKey = tuple[tuple[tuple[str, str | None, float], ...], str, int]
"""What makes a window the one that was wanted: jobs, hashes and shares; mode; repeat."""


def left_to_measure(
    blocks: Sequence[Block],
    points: Iterable[Point],
    gpu: Gpu,
    mode: str,
    beside: Sequence[tuple[str, Target]] = (),
) -> list[Block]:
    """The blocks without what the run's points already answer.

    All splits of a pair are compared with each other, so they come from one card: a pair that
    another card has only in part is measured again on this one.

    The points are those of the same run, of any card; `beside` are windows of the plan on a testbed
    of another mode, each with that mode: with and without limits a pair is compared as well.
    """
    cards = _keys_by_card(points, gpu)
    targets = [target for block in blocks for target in block.targets]
    others: defaultdict[tuple[str, ...], set[WindowKey]] = defaultdict(set)
    for other, target in beside:
        others[target.jobs].add(_key(target, other))
    done = _done(targets, cards, gpu.uuid, mode, others)
    return [b for b in remaining(blocks, done) if not _only_references_left(b, cards, mode)]


def _done(
    targets: Sequence[Target],
    cards: dict[str, set[WindowKey]],
    card: str,
    mode: str,
    others: Mapping[tuple[str, ...], set[WindowKey]],
) -> set[Target]:
    pairs: defaultdict[tuple[str, ...], list[Target]] = defaultdict(list)
    for target in targets:
        pairs[target.jobs].append(target)
    done: set[Target] = set()
    for names, group in pairs.items():
        keys = {target: _key(target, mode) for target in group}
        wanted = {*keys.values(), *others.get(names, ())}
        whole = len(names) > 1 and any(found >= wanted for found in cards.values())
        done |= {t for t, key in keys.items() if whole or key in cards.get(card, set())}
    return done


def _only_references_left(block: Block, cards: dict[str, set[WindowKey]], mode: str) -> bool:
    """Its pairs are done, and the jobs' own windows are known from the card that did them."""
    known = set[WindowKey]().union(*cards.values())
    return all(len(t.specs) == 1 and _key(t, mode) in known for t in block.targets)


def _keys_by_card(points: Iterable[Point], gpu: Gpu) -> dict[str, set[WindowKey]]:
    cards: defaultdict[str, set[WindowKey]] = defaultdict(set)
    for point in points:
        if point.gpu_model == gpu.model and "failed" not in point.flags:
            cards[point.gpu_uuid].add(_key_of(point))
    return cards


def _key(target: Target, mode: str) -> WindowKey:
    slots = tuple((r.job.name, r.job.job_hash, r.share.percent) for r in target.specs)
    return slots, pair_mode(mode, target) if len(slots) > 1 else mode, target.repeat


def _key_of(point: SoloPoint | PairPoint) -> WindowKey:
    if isinstance(point, SoloPoint):
        slots = ((point.job, point.job_hash, point.share_percent),)
    else:
        slots = tuple((part.job, part.job_hash, part.share_percent) for part in point.parts)
    return slots, point.mode, point.repeat
