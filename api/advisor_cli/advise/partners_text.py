"""The best partners of one job, for a person."""

from advisor.core.wording import less_or_more
from advisor.decide.reasons import percent
from advisor.wire.partners import Partners
from advisor_cli.shared.console import plain_table, print_table
from advisor_cli.shared.say import say


def show(found: Partners) -> None:
    """Print partners, the best size alone and how many copies there is memory for."""
    job, best = found.job, found.partners
    say(
        f"{job} on the {found.gpu_model}: {len(best)} best of {found.looked_at} jobs to share it "
        "with, predicted or measured; against one after the other"
    )
    priced = any(p.cost_saved for p in best)
    headings = ("partner", "", "split", "GPU time", "energy", *["price"] * priced, job, "partner's")
    rows = (
        (
            p.partner,
            p.verdict,
            p.split,
            *(
                less_or_more(saved.value, 0)
                for saved in (p.gpu_time_saved, p.energy_saved, p.cost_saved)
                if saved
            ),
            percent(min(p.speed.value, 1.0)),
            percent(min(p.partner_speed.value, 1.0)),
        )
        for p in best
    )
    print_table(plain_table(headings, rows))
    say(_alone(found))
    if best:
        say(f"next: advisor recommend {job} {best[0].partner}")


def _alone(found: Partners) -> str:
    """What it needs of the GPU without a partner, and the copies that memory has room for."""
    size = found.size
    p99 = f", p99 {size.latency_p99_ms:.3g} ms" if size and size.latency_p99_ms else ""
    alone = (
        f"alone: {size.share_percent:g} % of the SMs keep {percent(size.speed)} of its speed{p99}"
        if size
        else "alone: it needs the whole GPU"
    )
    copies = found.copies_by_memory
    return alone if copies is None else f"{alone}; memory has room for {copies} of it"
