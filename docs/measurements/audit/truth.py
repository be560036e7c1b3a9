"""What an audit says of a week next to what is true of it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from week import MINUTE_S, MODEL, Week

from advisor.core.interval import Interval
from advisor.core.objectives import NO_PRICES, Prices
from advisor.core.records import PairPoint
from advisor.decide.limits import Limits, with_card_memory
from advisor_audit.audit import Wanted, audit
from advisor_audit.kinds import SeenKind, Survey
from advisor_audit.packing import SLOT_S, Packer, Walk, Walked, make_packer
from advisor_audit.phases import Segment
from advisor_audit.ranges import SavedInWorlds, saved
from advisor_audit.reading import Source, pages_of
from advisor_audit.result import Audit, AuditTotals, Hours, Now, Shared
from advisor_data.files.bundled import bundled_set_points
from advisor_models.one_window_errors import OneWindowHead, bundled_head


def run_audit(
    source: Source,
    folder: Path,
    within: str = "namespace",
    head: OneWindowHead | None = None,
    prices: Prices = NO_PRICES,
) -> Audit:
    """As the command does it, with no profile known."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = Wanted(head=head or bundled_head(), within=within, prices=prices)
    return audit(source, folder, wanted, lambda _what, _done, _of: None)


@dataclass(frozen=True, slots=True)
class Truth:
    """The same, of what really ran, with every full profile known."""

    now: Now
    shared: Shared
    saved: SavedInWorlds


def truth_packer(week: Week) -> Packer:
    """Of whole profiles, and of jobs that wait."""
    return _packer(_survey(week), [*week.segments()])[0]


def truth(week: Week, within: str = "namespace") -> Truth:
    """Packed by the same code, of whole profiles, of jobs as they really were there."""
    found, survey, hours = [*week.segments()], _survey(week), Hours()
    packer, numbers = _packer(survey, found)
    hours.add_page(found)
    hours.gpus = {str(n) for n in range(week.gpus)}
    walk = Walk(survey, {MODEL: packer}, numbers, within, Walked(SLOT_S, 1))
    walk.page(found, 0.0, week.minutes * MINUTE_S)
    totals = AuditTotals(
        survey=survey,
        packers={MODEL: packer},
        walked=walk.walked,
        hours=hours,
        prices=NO_PRICES,
        saved=saved(walk.walked, {MODEL: packer}, [{MODEL: packer}], seed=1000),
    )
    now = totals.now()
    return Truth(now, totals.shared(now), totals.saved)


def _survey(week: Week) -> Survey:
    survey = Survey(known={(MODEL, name): profile for name, profile in week.known().items()})
    survey.add_page([*week.segments()])
    return survey


def _packer(survey: Survey, found: Sequence[Segment]) -> tuple[Packer, dict[SeenKind, int]]:
    kinds = sorted({kind for one in found if (kind := survey.kind_of(one))})
    for one in found:
        if kind := survey.kind_of(one):
            survey.count(one, kind)
    limits = with_card_memory(Limits(), MODEL)
    own = survey.profiles(kinds, bundled_head())
    packer = make_packer(kinds, own, 70.0, "least-energy", limits, NO_PRICES)
    return packer, {kind: n for n, kind in enumerate(kinds)}


def table(name: str, said: Audit, true: Truth) -> list[str]:
    """Rows: what, said, range, true, off by."""
    rows: list[tuple[str, float, float, Interval | None]] = [
        ("cards held at once", said.now.cards, true.now.cards, None),
        ("GPU hours held", said.now.gpu_hours, true.now.gpu_hours, None),
        ("of them waiting", said.now.paused_hours, true.now.paused_hours, None),
        ("kWh held", said.now.kwh, true.now.kwh, None),
    ]
    for what in ("cards", "gpu_hours", "kwh", "kwh_idle"):
        of: Interval = getattr(said.shared, what)
        rows.append((f"shared: {what}", of.value, getattr(true.shared, what).value, of))
    lines = [f"### {name}", "", "| | audit | range | true | off |", "|---|--:|--:|--:|--:|"]
    for what, value, real, of in rows:
        ends = f"{of.low:,.0f} to {of.high:,.0f}" if of else ""
        off = f"{100 * (value / real - 1):+.1f} %" if real else "-"
        lines.append(f"| {what} | {value:,.0f} | {ends} | {real:,.0f} | {off} |")
    return lines


def held_minutes(week: Week, held: Mapping[str, float]) -> str:
    """How far off the time of each pod is."""
    real = {job.owner.name: job.end - job.begin for job in week.jobs}
    found = [abs(held.get(name, 0.0) - minutes) for name, minutes in real.items()]
    strangers = sum(minutes for name, minutes in held.items() if name not in real)
    missed = sum(name not in held for name in real)
    off = sorted(found)
    return (
        f"{len(real)} pods, {missed} not found; minutes off: median {off[len(off) // 2]:.0f}, "
        f"90th percentile {off[9 * len(off) // 10]:.0f}, most {off[-1]:.0f}; "
        f"{strangers:.0f} minutes of jobs that were none"
    )


def minutes_of_pods(source: Source, folder: Path) -> dict[str, float]:
    """Of each pod, from the pages on disk."""
    held, pages = defaultdict[str, float](float), pages_of(source, folder)
    for page in range(len(pages.pages)):
        for one in pages.segments(page):
            if one.owner:
                held[one.owner.name] += (one.end_s - one.begin_s) / MINUTE_S
    return held


def measured_sets(week: Week, said: Audit) -> list[str]:
    """Sets of the audit that were measured as they are, and what was measured of them."""
    measured: dict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
    for point in _points(week):
        names = tuple(sorted(part.job for part in point.parts))
        alone = [week.profiles[part.job] for part in point.parts]
        speeds = [
            part.rate / profile.whole_gpu_rate
            for part, profile in zip(point.parts, alone, strict=True)
        ]
        work_w = sum(s * p.whole_gpu_power_w for s, p in zip(speeds, alone, strict=True))
        measured[names].append((point.power_w, 1 - point.power_w / work_w))
    weights, watts, saved = Counter[str](), [], []
    for one in said.sets:
        names = tuple(sorted(job.removeprefix("app-") for job in one.jobs))
        if names in measured:
            power_w = sum(w for w, _ in measured[names]) / len(measured[names])
            real = sum(s for _, s in measured[names]) / len(measured[names])
            own = one.power_w + one.saved_w
            watts.append(one.power_w / power_w - 1)
            saved.append((one.saved_w / (own) if own else 0.0) - real)
            weights["hours"] += round(one.hours)
    if not watts:
        return ["no set of the audit was measured as it is"]
    off, bias = (100 * _mean(own) for own in (map(abs, watts), watts))
    saved_off, saved_bias = (100 * _mean(own) for own in (map(abs, saved), saved))
    return [
        f"{len(watts)} sets of the audit, {weights['hours']} hours, were measured as they are: "
        f"watts off by {off:.1f} % in the mean ({bias:+.1f}), "
        f"energy saved by {saved_off:.1f} points ({saved_bias:+.1f})"
    ]


def _points(week: Week) -> Iterator[PairPoint]:
    for point in bundled_set_points():
        known = all(part.job in week.profiles for part in point.parts)
        if point.gpu_model == MODEL and point.mode == "uncapped" and known:
            yield point


def _mean(values: Iterable[float]) -> float:
    own = [*values]
    return sum(own) / len(own)
