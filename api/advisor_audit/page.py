"""An audit as one page of HTML: the first screens are for a decision, the rest for an operator.

Nothing is fetched and nothing runs: it can be mailed, printed and kept.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from html import escape
from pathlib import Path

from advisor.core.gpu import WHOLE
from advisor.core.objectives import Interval
from advisor.core.wording import counted, in_digits, less_or_more, printable
from advisor_audit.audit import MONTH_H, Audit, AuditedJob, HeldBy, HostSet, SharingSet

# Rows of tables; JSON has more.
_SETS, _JOBS = 30, 100

_WORDS = (
    ("measured", "read from the series"),
    ("estimated", "from one window of a job on the whole GPU, never tried"),
    ("prior", "the same on a GPU model on which nothing was measured"),
    ("predicted", "from a job's full profile, never tried"),
)


def page(audit: Audit) -> str:
    """The whole page."""
    body, style = "\n".join(_parts(audit)), Path(__file__).with_name("page.css").read_text()
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">"
        f"<title>What sharing GPUs would give</title><style>{style}</style></head>"
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def _parts(audit: Audit) -> Iterator[str]:
    yield from _first(audit)
    full, small, unknown = (
        [job for job in audit.jobs if job.fills is fills] for fills in (True, False, None)
    )
    tails = [job for job in audit.jobs if job.tail]
    sections = {
        "The changes that save most": audit.changes and _changes(audit),
        "The first week": audit.changes and _list(_first_week(audit), "ol"),
        "What was not seen": _list(audit.not_seen),
        "What only a launch would show": _list(audit.to_prove),
        "Measured, against what you may have": _measured(),
        "Labels of the jobs": _held_by(audit.held_by),
        "Sets that share": _sets(audit.sets[:_SETS]),
        "Jobs that do not fill a GPU": small and _jobs(small[:_JOBS], "Most hours first."),
        "Jobs that may fill a GPU": unknown
        and _jobs(unknown[:_JOBS], "Their SM activity was not read."),
        "Jobs that fill a GPU": full
        and _jobs(full[:_JOBS], "SMs active half of the time or more."),
        "Tails at risk": tails and _tails(tails[:_SETS]),
        "Pairs to begin with": audit.first_pairs and _pairs(audit.first_pairs),
    }
    yield from (f"<h2>{title}</h2>\n{content}" for title, content in sections.items() if content)
    yield "<h2>About this audit</h2>"
    span = audit.span
    requests = (
        f"{span.requests:,} requests, {span.received_bytes / 1e6:,.1f} MB; the server was busy or "
        f"gone {span.waits} times. "
    )
    who = "all jobs" if span.within == "all" else f"jobs of one {span.within}"
    yield (
        f"<p class=soft>Made {_moment(audit.made_at):%Y-%m-%d %H:%M} UTC from means over "
        f"{span.step_s:.0f} s. May share: {_text(who)}. Objective: {span.objective}; least speed "
        f"{100 * span.min_speed:.0f} % of that alone. "
        f"{requests if span.requests else ''}{audit.left_out:,} jobs are not listed.</p>"
    )


def _first(audit: Audit) -> Iterator[str]:
    now, shared, word = audit.now, audit.shared, _word(audit.shared.basis)
    yield f"<p class=soft>{_text(audit.span.source)}, {span_text(audit)}</p>"
    yield f"<h1>{_text(headline(audit))}</h1>"
    yield (
        f"<p>{now.gpus:,} GPUs were seen. Today's figures are {_word('measured')}; those with "
        f"sharing are {word}, for the same work, with 90 % ranges. No sharing was tried. A month "
        f"is {MONTH_H:.0f} hours like those that were read.</p>"
    )
    months = audit.span.months
    tiles = (
        ("Peak GPUs in use", now.cards, shared.cards),
        *(
            (f"{name} a month", today and today / months, after and after.times(1 / months))
            for name, today, after in (
                ("Money", now.cost, shared.cost),
                ("GPU hours", now.gpu_hours, shared.gpu_hours),
                ("kWh, freed GPUs off,", now.kwh, shared.kwh),
                ("kWh, freed GPUs idle,", now.kwh, shared.kwh_idle),
            )
        ),
    )
    yield "<dl class=tiles>"
    yield from (
        f"<div><dt>{name}</dt><dd class=big>{after.value:,.0f}</dd>"
        f"<dd>{after.low:,.0f} to {after.high:,.0f} {word}</dd>"
        f"<dd class=soft>{before:,.0f} today {_word('measured')}</dd></div>"
        for name, before, after in tiles
        if before is not None and after is not None
    )
    yield "</dl>"
    if now.cost is None:
        yield f"<p>{_text(NO_PRICE)}</p>"
    free = f"{now.free_hours:,.0f} GPU hours"
    if now.free_kwh is not None:
        free += f" ({now.free_kwh:,.0f} kWh)"
    yield (
        f"<p>Of the {_hours(now.gpu_hours)} GPU hours read {now.paused_hours:,.0f} are of paused "
        f"jobs. Another {free} were idle; sharing does not change those.</p>"
    )
    words = ", ".join(f"{_word(word)} {meaning}" for word, meaning in _WORDS)
    yield f"<p class=soft>{words}.</p>"


NO_PRICE = (
    "Money a month: not known. Set ADVISOR_GPU_HOUR, what a GPU costs an hour, or ADVISOR_KWH, and "
    "ask again."
)


def span_text(audit: Audit) -> str:
    """How long was read, and until when."""
    days = (_moment(audit.span.end) - _moment(audit.span.begin)).total_seconds() / 86400
    span = f"{days:.3g} days" if days >= 2 else f"{24 * days:.3g} hours"
    return f"{span} to {_moment(audit.span.end):%Y-%m-%d %H:%M} UTC"


def headline(audit: Audit) -> str:
    """The answer in one sentence."""
    now, shared = audit.now, audit.shared
    freed = now.cards - shared.cards.value
    hours = 1 - shared.gpu_hours.value / now.gpu_hours if now.gpu_hours else 0.0
    if now.kwh is None or shared.kwh is None:
        return "Nothing can be said of sharing here: no power was read"
    kwh = 1 - shared.kwh.value / now.kwh if now.kwh else 0.0
    all_hours, left = now.gpu_hours + now.unseen_hours, audit.left_hours
    why = ", ".join(f"{_hours(h)} {why}" for why, h in left.items() if h > 0.02 * all_hours)
    if freed < 1 and hours < 0.02:
        if sum(left.values()) > all_hours / 2:
            return f"Most of {_hours(all_hours)} GPU hours are left as they are: {why}"
        # What was not read may be just what could share.
        unread = shared.apart_hours.get("too little read", 0.0) + now.unseen_hours
        what = "next to nothing here" if unread < all_hours / 10 else "little of what was read"
        said = f"Sharing would free {what} ({shared.basis})"
    else:
        cost = ""
        if now.cost and shared.cost:
            cost = f", {less_or_more(1 - shared.cost.value / now.cost, 0)} cost"
        said = (
            f"{shared.cards.value:,.0f} of {now.cards:,} GPUs would have been enough "
            f"({shared.basis}, {shared.cards.low:,.0f} to {shared.cards.high:,.0f}): "
            f"{less_or_more(hours, 0)} GPU time, {less_or_more(kwh, 0)} energy{cost}"
        )
    return said + (f"; of {_hours(all_hours)} GPU hours left as they are: {why}" if why else "")


def change_text(change: SharingSet, months: float) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Which jobs would share, the savings a month, and the risks."""
    limited = counted(map(_limited, change.jobs, change.limits_percent))
    savings = (
        (change.saved_cost, "in money"),
        (change.freed_hours, "GPU hours"),
        (change.saved_kwh, "kWh"),
    )
    saves = (f"{_between(of, months)} {unit}" for of, unit in savings if of)
    late = (
        f"p99 of {job} {tail.value:.1f} times that alone ({tail.low:.1f} to {tail.high:.1f})"
        for job, tail in dict(zip(change.jobs, change.tails, strict=True)).items()
        if tail
    )
    of_card = "" if change.card_mib is None else f" of {change.card_mib / 1024:,.0f}"
    slowest = (100 * end for end in (change.slowest.value, change.slowest.low, change.slowest.high))
    risks = (
        f"a crash of one job ends {'both' if len(change.jobs) == 2 else f'all {len(change.jobs)}'}",
        "the slowest keeps {:.0f} % ({:.0f} to {:.0f})".format(*slowest),
        *late,
        f"{sum(change.memory_mib) / 1024:,.0f}{of_card} GiB in use",
    )
    return f"{limited} on one {change.gpu_model}", tuple(saves), risks


def _between(of: Interval, months: float) -> str:
    value, low, high = (f"{end / months:,.0f}" for end in (of.value, of.low, of.high))
    return value if low == high else f"{value} ({low} to {high})"


def _first_week(audit: Audit) -> Iterator[str]:
    """What to do from day to day, so that little is at risk before much is known."""
    first, job = audit.changes[0], audit.changes[0].jobs[0]
    yield (
        f"Day 1, measure: `advisor watch --for 120` on the host of {job} keeps what it sees of "
        "each job alone; `advisor profile` with its command measures every limit, which narrows "
        "the ranges."
        if first.basis == "estimated"
        else f"Day 1, look again: {counted(first.jobs)} have full profiles; `advisor drift` says "
        "whether they are still right."
    )
    yield (
        f"Day 2, share one GPU: {audit.first_pairs[0].command}. Among pairs of short runs without "
        "servers, this is the surest to save."
        if audit.first_pairs
        else "Day 2, share one GPU, for tests: no pair without servers is sure to save, so begin "
        "with copies of the first change that are not urgent."
    )
    tails = [
        f"p99 of {name} over {tail.high:.1f} times that alone"
        for name, tail in dict(zip(first.jobs, first.tails, strict=True)).items()
        if tail
    ]
    stops = [f"a job keeps less than {100 * first.slowest.low:.0f} % of its speed", *tails]
    yield (
        "Days 3 and 4, the first change: this audit with `--as PLACER` prints what to paste. Leave "
        f"a GPU free to go back to, and go back where {', or '.join(stops)}: that is outside the "
        "range."
    )
    yield (
        "Day 5, compare: the same audit over these days counts GPUs that are shared already, with "
        "their hours and energy; `advisor launches` has predicted beside observed."
    )
    yield (
        "Days 6 and 7: where the first change kept its ranges, make the next. Where it did not, "
        "profile the job that was off, and audit again before the next."
    )


def _hours(hours: float) -> str:
    return f"{hours:,.{int(hours < 10)}f}"


def _text(of: str) -> str:
    """As HTML; control characters for a terminal are shown as text."""
    return escape(printable(of)).replace(" %", "\N{NO-BREAK SPACE}%")


def _word(word: str) -> str:
    return f"<span class=word>{word}</span>"


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are HTML; those that begin with a number stand to the right."""
    lines = [[*row] for row in rows]
    if not lines:
        return "<p>None.</p>"
    numbers = [
        n > 0 and all(line[n][:1] in "0123456789-" for line in lines) for n in range(len(heads))
    ]
    kinds = [' class="n"' if is_number else "" for is_number in numbers]
    head = "".join(f'<th scope="col"{k}>{_text(h)}</th>' for h, k in zip(heads, kinds, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{k}>{c}</td>" for c, k in zip(line, kinds, strict=True)) + "</tr>"
        for line in lines
    )
    return (
        f'<div class=scroll tabindex="0"><table><caption>{_text(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _changes(audit: Audit) -> str:
    """The sets worth most, each with its risk."""
    freed = sum(change.freed_hours.value for change in audit.changes)
    whole = audit.now.gpu_hours - audit.shared.gpu_hours.value
    part = f"They free {100 * freed / whole:.0f} % of what sharing would. " if whole > 0 else ""
    items = "".join(
        f"<li><h3>{_text(who)}</h3><p>Saved a month, {_word(change.basis)}</p>{_list(saves)}"
        f"<p>At risk</p>{_list(risks)}</li>"
        for change in audit.changes
        for who, saves, risks in [change_text(change, audit.span.months)]
    )
    said = f"{part}A month has {MONTH_H:.0f} hours, ranges are of 90 %, freed GPUs are off."
    return f"<p>{_text(said)}</p><ol class=changes>{items}</ol>"


def _measured() -> str:
    """What ways of sharing gave where they were measured, written by docs/measurements."""
    tables = (
        _table(
            table["measured"],
            ("way", *table["heads"]),
            ([*map(_text, row)] for row in table["rows"]),
        )
        for table in json.loads(Path(__file__).with_name("against.json").read_text())
    )
    said = (
        "On an H200, against a GPU for each job, freed GPUs off: means, with 95 % over jobs. Equal "
        "parts are the device plugin's MPS, all that fit is what KAI and HAMi do without limits on "
        "compute. Limits are 40 % of the speed alone, what a server is asked for, and five times "
        "its p99 alone; energy is counted a second time with nothing saved where one is broken."
    )
    return f"<p>{_text(said)}</p>{''.join(tables)}"


def _sets(sets: Sequence[SharingSet]) -> str:
    return _table(
        "Sets that could have shared a GPU in the time that was read, the best first. Speeds are "
        "relative to alone; @50 behind a job is an MPS share of 50 %.",
        (
            "jobs, each with its speed",
            "whose",
            "hours",
            "W",
            "GPU hours freed",
            "kWh less",
            "known",
        ),
        (
            (
                _text(counted(map(_member, sharing.jobs, sharing.speeds, sharing.limits_percent))),
                _text(sharing.group or "-"),
                f"{sharing.hours:,.1f}",
                f"{sharing.power_w:.0f}",
                f"{sharing.freed_hours.value:,.1f}",
                f"{sharing.saved_kwh.value:,.1f}",
                _word(sharing.basis),
            )
            for sharing in sets
        ),
    )


def _held_by(labels: Sequence[HeldBy]) -> str:
    return _table(
        "Labels that said so, and what they were taken for. Where one is taken wrongly, name "
        "another: --job-label, --group-label.",
        ("label", "taken for", "jobs", "GPU hours"),
        (
            (
                _text(label.label or "-"),
                _text(label.taken_for),
                f"{label.jobs:,}",
                in_digits(label.gpu_hours),
            )
            for label in labels
        ),
    )


def _member(job: str, speed: float, share: float) -> str:
    return f"{_limited(job, share)} {100 * speed:.0f} %"


def _limited(job: str, share: float) -> str:
    return f"{job}@{share:.0f}" if share < WHOLE else job


def _jobs(jobs: Sequence[AuditedJob], caption: str) -> str:
    return _table(
        caption,
        (
            "job",
            "whose",
            "GPU hours",
            "paused",
            "active, %",
            "memory, GiB",
            "kWh",
            "could share, h",
            "",
        ),
        (
            (
                _text(job.job),
                _text(job.group or "-"),
                f"{job.gpu_hours:,.1f}",
                f"{job.paused_hours:,.1f}",
                "-" if job.activity_percent is None else f"{job.activity_percent:.0f}",
                f"{job.memory_mib / 1024:.1f}",
                f"{job.kwh:,.1f}",
                f"{job.shared_hours:,.1f}",
                "several GPUs" if job.several_gpus else "like a server" if job.is_server else "",
            )
            for job in jobs
        ),
    )


def _tails(jobs: Sequence[AuditedJob]) -> str:
    return _table(
        "What looks like a server, in the hardest of its sets.",
        ("job", "whose", "p99, times that alone", "range", "known"),
        (
            (
                _text(job.job),
                _text(job.group or "-"),
                f"{job.tail.value:.1f}",
                f"{job.tail.low:.1f} to {job.tail.high:.1f}",
                _word(job.basis),
            )
            for job in jobs
            if job.tail
        ),
    )


def _pairs(pairs: Sequence[HostSet]) -> str:
    return _table(
        "Sure to save, of no server, and of short runs, since a fault of one ends both.",
        ("jobs, each with its speed", "W saved", "command"),
        (
            (
                _text(counted(map(_member, pair.jobs, pair.speeds, pair.limits_percent))),
                f"{pair.saved_w.value:.0f} ({pair.saved_w.low:.0f} to {pair.saved_w.high:.0f})",
                f"<code>{_text(pair.command)}</code>",
            )
            for pair in pairs
        ),
    )


def _list(sentences: Iterable[str], kind: str = "ul") -> str:
    """Sentences; what stands between backquotes is code."""
    texts = (re.sub("`(.*?)`", r"<code>\1</code>", _text(sentence)) for sentence in sentences)
    return f"<{kind}>{''.join(f'<li>{text}</li>' for text in texts)}</{kind}>"
