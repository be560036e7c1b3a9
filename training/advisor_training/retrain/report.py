"""What a run of retraining did."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias, get_args

from advisor.core.wording import count_of
from advisor_models.manifest import BUNDLED_NAME
from advisor_training.dataset.pairs import LeftOut
from advisor_training.retrain.comparison import ComparedFigure
from advisor_training.retrain.refused import RefusedPoints

_Outcome: TypeAlias = Literal["nothing-new", "promoted", "kept"]
OUTCOMES: tuple[_Outcome, ...] = get_args(_Outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrainReport:
    """A run, from the points to the decision.

    Attributes:
        at: When, ISO 8601, UTC.
        outcome: nothing-new: nothing was trained. kept: the challenger did not become the champion.
        champion: The model in use after the run; None is the bundled one.
        challenger: Version of the model that was trained.
        new_points: Points that the champion has not learned from, left-out ones among them.
        used_points: Points that the challenger has learned from; None where there is none.
        left_out: New points that it has not learned from, by reason.
        launches_left_out: Launches that teach nothing, and why; they are no points, and are the
            same in each run.
        removed: Versions that were deleted, as newer ones took their place.
    """

    at: str
    outcome: _Outcome
    why: str
    champion: str | None
    replaced: str | None = None
    challenger: str | None = None
    new_points: int = 0
    used_points: int | None = None
    left_out: tuple[RefusedPoints, ...] = ()
    launches_left_out: tuple[LeftOut, ...] = ()
    compared: tuple[ComparedFigure, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def left_out_points(self) -> int:
        """New points that it has not learned from, over all reasons."""
        return sum(of_reason.points for of_reason in self.left_out)

    @property
    def is_silent(self) -> bool:
        """Whether there is nothing to tell: nothing was trained and nothing left out."""
        return self.outcome == "nothing-new" and not self.left_out

    @property
    def summary(self) -> str:
        """One line for the mail of cron."""
        return f"{self._verdict}: {self.why}; {self._points}"

    @property
    def _verdict(self) -> str:
        now = self.champion or BUNDLED_NAME
        if self.outcome == "promoted":
            return f"{now} replaces {self.replaced or BUNDLED_NAME}"
        return f"{now} stays"

    @property
    def _points(self) -> str:
        new, out = count_of(self.new_points, "new point"), self.left_out_points
        if not out:
            return new
        reasons = ", ".join(f"{one.points} {one.reason}" for one in self.left_out)
        return f"{new}, {out} left out: {reasons}"


def moment_text(now: datetime) -> str:
    """A moment as reports have it."""
    return now.isoformat(timespec="seconds")
