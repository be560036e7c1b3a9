"""The words that mark what was wrong with a measured window."""

COUNTER_BOUND = 0.03
"""Largest relative disagreement of energy counter and instant power that is not flagged."""

DEGENERATE = "degenerate-data"

UNREAD = "results-unread"

SLOW_ALONE = "slow-alone"

CPU_BOUND = "cpu-bound"

LIMIT_BROKEN = "limit-broken"

TOO_FAST, TOO_SLOW = "too-fast", "too-slow"

HEAT = "heat"

P99_BROKEN = "p99-broken"

UNWATCHED = "unwatched"

STRANGER = "stranger"

UNCOUNTED = "uncounted"

ONE_WINDOW = "one-window"

FLAGS: dict[str, str] = {
    "noisy-rate": "standard error of a rate above the target when the window's time was up; of a "
    "job with a demand, above what chance makes of its requests",
    "noisy-power": "standard error of the power above the target when the window's time was up",
    "not-settled": "power or rate still moved when the window began",
    "throttled": "the clock was lowered: power cap, heat or a hardware slowdown",
    HEAT: "not the power limit, or not alone, lowered the clock: heat, or a brake of the hardware",
    "counter-mismatch": "energy counter and instant power differ by more than "
    f"{COUNTER_BOUND:.0%} and more than three standard errors of the power",
    "counters-missing": "a counter that the models use could not be read",
    CPU_BOUND: "a job used a whole core or more while its SMs were idle over 30 % of the time",
    "cpu-steal": "other guests of the host took over 1 % of the CPU time",
    LIMIT_BROKEN: "a process computed on the GPU that was not under its limit, or of no job",
    TOO_FAST: "a job of a launch made far more progress than its profile says of its share alone",
    TOO_SLOW: "a job made under a twentieth of the progress that its profile says of its share",
    P99_BROKEN: "a server of a launch was above its promised p99 for several windows in a row",
    STRANGER: "a process of no job computed on the GPU beside those of a launch",
    UNWATCHED: "nobody looked at the jobs of a launch for 10 s or more: its supervisor was stopped",
    UNCOUNTED: "the progress or the results of a job of a launch could not be read for a time",
    "wrong-results": "a job reported a result that is not finite",
    "results-differ": "a job's results are further from those at the full GPU than it tolerates",
    "results-only": "too short for rates: measured to read the job's results",
    "failed": "a job of the pair failed: there are no rates",
    DEGENERATE: "too little energy for the work: results are likely wrong, such as NaN",
    SLOW_ALONE: "over 12 % slower on the whole GPU than at a smaller share: its host held it up",
    UNREAD: "a half-precision job at a count of SMs where the check of this GPU model found wrong "
    "results, and its own results were not read",
    ONE_WINDOW: "the job was seen on the whole GPU alone: its other shares are estimated from that",
}
"""Every flag that a point can carry, and its meaning."""

WRONG = frozenset({DEGENERATE, "wrong-results", "results-differ"})
"""Flags of points at which a job did not do its work: no profile has them, not even where a share
has no others."""

RESULTS_ONLY = "results-only"

DOUBTFUL = WRONG | {
    RESULTS_ONLY,
    UNREAD,
    LIMIT_BROKEN,
    TOO_FAST,
    TOO_SLOW,
    STRANGER,
    UNWATCHED,
    UNCOUNTED,
    HEAT,
    "not-settled",
    "counter-mismatch",
    "cpu-steal",
    "failed",
}
"""Flags of points that failed a cross-check, or are not of what was profiled: they stay in the
data, and are left out of what is learned or reported unless asked for. The other flags describe the
job or the size of its error."""
