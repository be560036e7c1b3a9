"""Each job placed once, when it begins, and never moved: what is left of packing anew.

    .venv/bin/python docs/measurements/audit/once.py

The week of `real.py` with whole profiles. A job joins the card of its namespace where the same work
then takes least, if it takes 3 % less than a card of its own, and stays until it ends; nobody knows
when that is. Pauses and changes of load are left out on both sides.
"""

import heapq
from collections import defaultdict
from dataclasses import dataclass, field

from truth import truth_packer
from week import Week, make_week

from advisor_audit.packing import Members, Packer


@dataclass(slots=True)
class Card:
    """Who is on it, since when."""

    members: list[int] = field(default_factory=list[int])
    level: int = 0
    since: int = 0


@dataclass(slots=True)
class Totals:
    """Hours of cards, with what lags behind, and their energy."""

    hours: float = 0.0
    kwh: float = 0.0

    def add(self, packer: Packer, card: Card, now: int) -> None:
        """What a card did since its set has changed."""
        if card.members:
            one = packer.set_of(tuple(sorted(card.members)), card.level)
            hours = (now - card.since) / 60
            self.hours += hours * (1 + one.lag_cards)
            self.kwh += hours * (one.power_w + one.lag_w) / 1000
        card.since = now


def main() -> None:
    """Print both."""
    week = make_week(200, 7, 3, steady=True)
    packer = truth_packer(week)
    number = {kind.known: n for n, kind in enumerate(packer.kinds)}
    alone_h = sum(job.end - job.begin for job in week.jobs) / 60
    alone = sum(
        (job.end - job.begin) / 60 * week.profiles[job.app].whole_gpu_power_w / 1000
        for job in week.jobs
    )
    once, most = _once(week, packer, number)
    anew, fewest = _anew(week, packer, number)
    print(f"a card each: {alone_h:.0f} GPU hours, {alone:.0f} kWh")
    print(f"placed once: {once.hours:.0f} GPU hours, {once.kwh:.0f} kWh, {most} cards at once")
    print(f"packed anew: {anew.hours:.0f} GPU hours, {anew.kwh:.0f} kWh, {fewest} cards at once")


def _once(week: Week, packer: Packer, number: dict[str, int]) -> tuple[Totals, int]:
    cards: dict[str, list[Card]] = defaultdict(list)
    ends: list[tuple[int, int, str, int, Card]] = []
    totals, most = Totals(), 0
    for n, job in enumerate(sorted(week.jobs, key=lambda job: job.begin)):
        group, kind = job.owner.group, number[job.app]
        while ends and ends[0][0] <= job.begin:
            _leave(packer, totals, *heapq.heappop(ends))
        card = _best(packer, [c for c in cards[group] if c.members], kind)
        if card is None:
            card = next((c for c in cards[group] if not c.members), None) or Card()
            if card not in cards[group]:
                cards[group].append(card)
        totals.add(packer, card, job.begin)
        _join(packer, card, kind)
        heapq.heappush(ends, (job.end, n, group, kind, card))
        most = max(most, sum(bool(c.members) for of in cards.values() for c in of))
    while ends:
        _leave(packer, totals, *heapq.heappop(ends))
    return totals, most


def _best(packer: Packer, cards: list[Card], kind: int) -> Card | None:
    gains = [
        (packer.row(tuple(sorted(card.members)), card.level).gains[kind], n)
        for n, card in enumerate(cards)
        if len(card.members) < 7
    ]
    gain, n = max(gains, default=(0.0, -1))
    return cards[n] if gain > 0 else None


def _join(packer: Packer, card: Card, kind: int) -> None:
    if card.members:
        row = packer.row(tuple(sorted(card.members)), card.level)
        card.level = int(row.levels[kind])
    card.members.append(kind)


def _leave(
    packer: Packer, totals: Totals, end: int, _n: int, _group: str, kind: int, card: Card
) -> None:
    totals.add(packer, card, end)
    card.members.remove(kind)
    if len(card.members) < 2:
        card.level = 0


def _anew(week: Week, packer: Packer, number: dict[str, int]) -> tuple[Totals, int]:
    totals, most = Totals(), 0
    for slot in range(0, week.minutes, 15):
        counts: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        for job in week.jobs:
            if job.begin <= slot + 7 < job.end:
                counts[job.owner.group][number[job.app]] += 1
        cards = 0.0
        for group in counts.values():
            for (members, level), count in packer.pack(dict(group)).items():
                _add(packer, totals, members, level, count)
                cards += count
        most = max(most, int(cards))
    return totals, most


def _add(packer: Packer, totals: Totals, members: Members, level: int, count: int) -> None:
    one = packer.set_of(members, level)
    totals.hours += count * 0.25 * (1 + one.lag_cards)
    totals.kwh += count * 0.25 * (one.power_w + one.lag_w) / 1000


if __name__ == "__main__":
    main()
