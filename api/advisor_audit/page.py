"""An audit as one page of HTML: who pays reads the first screen, an operator the rest.

Nothing is fetched and nothing runs: it can be mailed, printed and kept.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from html import escape
from pathlib import Path

from advisor.core.gpu import WHOLE
from advisor.core.objectives import Interval
from advisor.core.wording import counted, less_or_more, printable
from advisor_audit.audit import Audit, HeldBy, HostSet, SeenJob, SharingSet

_STYLE = Path(__file__).with_name("page.css")

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
    body = "\n".join(_parts(audit))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">"
        f"<title>What sharing GPUs would give</title><style>{_STYLE.read_text()}</style></head>"
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def _parts(audit: Audit) -> Iterator[str]:
    yield from _first(audit)
    full, small, unknown = (
        [job for job in audit.jobs if job.fills is fills] for fills in (True, False, None)
    )
    tails = [job for job in audit.jobs if job.tail]
    sections = {
        "Who held the GPUs": _held_by(audit.held_by),
        "Who with whom": _sets(audit.sets[:_SETS]),
        "Jobs that do not fill a card": small and _jobs(small[:_JOBS], "Most hours first."),
        "Jobs that may fill a card": unknown
        and _jobs(unknown[:_JOBS], "Of these no SM activity was read."),
        "Jobs that fill a card": full and _jobs(full[:_JOBS], "At work half of the time or more."),
        "Tails at risk": tails and _tails(tails[:_SETS]),
        "Pairs to begin with": audit.first_pairs and _pairs(audit.first_pairs),
        "What was not seen": _list(audit.not_seen),
        "What only a launch would show": _list(audit.to_prove),
    }
    yield from (f"<h2>{title}</h2>\n{content}" for title, content in sections.items() if content)
    yield "<h2>About this audit</h2>"
    span = audit.span
    asked = (
        f"{span.requests:,} requests, {span.received_bytes / 1e6:,.1f} MB; the server was busy or "
        f"gone {span.waits} times. "
    )
    who = "everybody" if span.within == "all" else f"jobs of one {span.within}"
    yield (
        f"<p class=soft>Made {_moment(audit.made_at):%Y-%m-%d %H:%M} UTC from means over "
        f"{span.step_s:.0f} s. May share: {_text(who)}. Objective: {span.objective}; least speed "
        f"{100 * span.min_speed:.0f} % of that alone. "
        f"{asked if span.requests else ''}{audit.left_out:,} jobs are not listed.</p>"
    )


def _first(audit: Audit) -> Iterator[str]:
    now, shared, word = audit.now, audit.shared, _word(audit.shared.basis)
    days = (_moment(audit.span.end) - _moment(audit.span.begin)).total_seconds() / 86400
    span = f"{days:.3g} days" if days >= 2 else f"{24 * days:.3g} hours"
    end = f"{_moment(audit.span.end):%Y-%m-%d %H:%M} UTC"
    yield f"<p class=soft>{_text(audit.span.source)}, {span} to {end}</p>"
    yield f"<h1>{_text(headline(audit))}</h1>"
    yield (
        f"<p>{now.gpus:,} GPUs were seen. Today's figures are {_word('measured')}; those with "
        f"sharing are {word}, for the same work, with ranges of 90 %. Nothing of it was tried.</p>"
    )
    tiles: Sequence[tuple[str, float | None, Interval | None]] = (
        ("GPUs, most at once", now.cards, shared.cards),
        ("GPU hours", now.gpu_hours, shared.gpu_hours),
        ("kWh, freed GPUs off", now.kwh, shared.kwh),
        ("kWh, freed GPUs idle", now.kwh, shared.kwh_idle),
        ("Money", now.cost, shared.cost),
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
    free = f"{now.free_hours:,.0f} GPU hours"
    if now.free_kwh is not None:
        free += f" ({now.free_kwh:,.0f} kWh)"
    yield (
        f"<p>Of the GPU hours that are held, {now.paused_hours:,.0f} are of jobs that wait. Beside "
        f"them {free} are held by nobody: sharing has no part in those.</p>"
    )
    words = ", ".join(f"{_word(word)} {meaning}" for word, meaning in _WORDS)
    yield f"<p class=soft>{words}.</p>"


def headline(audit: Audit) -> str:
    """One sentence for who pays."""
    now, shared = audit.now, audit.shared
    freed = now.cards - shared.cards.value
    hours = 1 - shared.gpu_hours.value / now.gpu_hours if now.gpu_hours else 0.0
    if now.kwh is None or shared.kwh is None:
        return "Nothing can be said of sharing here: no power was read"
    kwh = 1 - shared.kwh.value / now.kwh if now.kwh else 0.0
    all_hours = now.gpu_hours + now.unseen_hours
    left = {**shared.apart_hours, "no readings": now.unseen_hours}
    seen = sorted(((h, why) for why, h in left.items() if h > 0.02 * all_hours), reverse=True)
    why = ", ".join(f"{_hours(h)} {why}" for h, why in seen)
    if freed < 1 and hours < 0.02:
        if sum(left.values()) > all_hours / 2:
            return f"Most of {_hours(all_hours)} GPU hours are left as they are: {why}"
        # What was not read may be just what could share.
        unread = shared.apart_hours.get("too little read", 0.0) + now.unseen_hours
        what = "next to nothing here" if unread < all_hours / 10 else "little of what was read"
        said = f"Sharing would free {what} ({shared.basis})"
    else:
        said = (
            f"{shared.cards.value:,.0f} of {now.cards:,} GPUs would have been enough "
            f"({shared.basis}): {less_or_more(hours, 0)} GPU time, {less_or_more(kwh, 0)} energy "
            "with freed GPUs off"
        )
    return said + (f"; of {_hours(all_hours)} GPU hours left as they are: {why}" if why else "")


def _hours(hours: float) -> str:
    return f"{hours:,.{int(hours < 10)}f}"


def _text(of: str) -> str:
    """As HTML; what would steer the terminal of who looks at the file is shown instead."""
    return escape(printable(of))


def _word(word: str) -> str:
    return f"<span class=word>{word}</span>"


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are HTML; those that begin with a number stand to the right."""
    lines = [[*row] for row in rows]
    if not lines:
        return "<p>None.</p>"
    numbers = [all(line[n][:1] in "0123456789-" for line in lines) for n in range(len(heads))]
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


def _sets(sets: Sequence[SharingSet]) -> str:
    return _table(
        "Sets that could have shared a GPU, those with the most hours together first. Speeds are "
        "of that alone; a job behind whose name @50 stands would have an MPS share of 50 %.",
        ("jobs, each with its speed", "whose", "hours", "W", "W saved", "known"),
        (
            (
                _text(counted(map(_member, one.jobs, one.speeds, one.limits_percent))),
                _text(one.group or "-"),
                f"{one.hours:,.1f}",
                f"{one.power_w:.0f}",
                f"{one.saved_w:.0f}",
                _word(one.basis),
            )
            for one in sets
        ),
    )


def _held_by(labels: Sequence[HeldBy]) -> str:
    return _table(
        "Labels that said so, and what they were taken for. Where one is taken wrongly, name "
        "another: --job-label, --group-label.",
        ("label", "taken for", "jobs", "GPU hours"),
        (
            (
                _text(one.label or "-"),
                _text(one.taken_for),
                f"{one.jobs:,}",
                f"{one.gpu_hours:,.3g}",
            )
            for one in labels
        ),
    )


def _member(job: str, speed: float, share: float) -> str:
    limit = f"@{share:.0f}" if share < WHOLE else ""
    return f"{job}{limit} {100 * speed:.0f}\N{NO-BREAK SPACE}%"


def _jobs(jobs: Sequence[SeenJob], caption: str) -> str:
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


def _tails(jobs: Sequence[SeenJob]) -> str:
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
                _text(counted(map(_member, one.jobs, one.speeds, one.limits_percent))),
                f"{one.saved_w.value:.0f} ({one.saved_w.low:.0f} to {one.saved_w.high:.0f})",
                f"<code>{_text(one.command)}</code>",
            )
            for one in pairs
        ),
    )


def _list(sentences: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{_text(one)}</li>" for one in sentences) + "</ul>"
