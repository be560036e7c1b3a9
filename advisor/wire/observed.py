"""What was learned from launches, as `advisor drift`, advice and the service say it."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from advisor.core.interval import Interval
from advisor.core.wording import count_of, listed

DriftQuantity: TypeAlias = Literal["rate", "power"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPower:
    """What a card draws, for each watt of what others of its model do.

    Attributes:
        power_factor: With bounds that hold it in 90 % of cards.
        references: Jobs alone on the whole GPU that it was learned from.
        observations: Pairs of jobs that it was learned from.
    """

    gpu_uuid: str
    power_factor: Interval
    references: int
    observations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTogether:
    """What was measured of the very jobs on the GPU model, and is in the answer.

    Attributes:
        launches: Of these jobs, observed here.
        windows: Of `advisor colocate` here.
        bundled: Windows that come with advisor.
        at_choice: How many of all these are at the split of the answer.
    """

    launches: int
    windows: int
    bundled: int
    at_choice: int

    @property
    def text(self) -> str:
        """In words, such as "measured here, 3 launches"."""
        kinds = {"launch": self.launches, "window": self.windows}
        here = listed(count_of(n, kind) for kind, n in kinds.items() if n)
        if not here:
            come = "comes" if self.bundled == 1 else "come"
            return f"measured: {count_of(self.bundled, 'window')} that {come} with advisor"
        return f"measured here, {here}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftedJob:
    """A job on a card that does other than expected, and did not before.

    Attributes:
        gpu_uuid: The card; None: not known.
        quantity: What drifted: the job's rate, or the power of the GPU beside it.
        ratio: Observed over expected since then.
        since: Start of the first launch that was off, ISO 8601, UTC.
        observations: Launches since then.
        software: Versions seen since then and never before.
    """

    job: str
    gpu_model: str
    gpu_uuid: str | None
    quantity: DriftQuantity
    ratio: float
    since: str
    observations: int
    software: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """In words."""
        word = "less" if self.ratio < 1 else "more"
        unit = "power beside" if self.quantity == "power" else "rate of"
        card = f" on card {self.gpu_uuid}" if self.gpu_uuid else ""
        changed = f", since {', '.join(self.software)}" if self.software else ""
        return (
            f"{unit} {self.job}{card} has drifted: {100 * abs(self.ratio - 1):.0f} % {word} than "
            f"expected in {self.observations} launches since {self.since}{changed}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftReport:
    """What launches of this host say of model, cards and checks.

    Attributes:
        observations: How many were compared with what the model in use expects.
        drifts: Jobs that do other than expected.
        cards: What the observed cards draw.
        outdated_checks: In words, GPU models whose driver or libraries have changed since `advisor
            check`.
    """

    observations: int
    drifts: tuple[DriftedJob, ...]
    cards: tuple[CardPower, ...]
    outdated_checks: tuple[str, ...]
