"""What `advisor colocate` is to measure, as its options tell it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.core.job import Job
from advisor.errors import InputError
from advisor_profiling.campaign.plan import Plan
from advisor_profiling.campaign.plan_file import load_plan, plan_from_options, run_name

DEFAULT_SPLITS = "nine,uncapped"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be measured, as the options tell it; None and "" where they do not."""

    file: Path | None
    among: str
    pairs: str
    splits: str | None
    sample: int | None
    repeats: int | None
    run: str | None

    def plan(self, jobs: Mapping[str, Job]) -> Plan:
        """The plan of a file or of options.

        Raises:
            InputError: there is none, or more than one, or it cannot be understood.
        """
        if (self.file is not None) + bool(self.among) + bool(self.pairs) != 1:
            raise InputError(
                "what to measure is not clear", fix="give a plan file, or --among, or --pairs"
            )
        if self.file is None:
            splits = DEFAULT_SPLITS if self.splits is None else self.splits
            repeats = 1 if self.repeats is None else self.repeats
            return plan_from_options(
                self.among, self.pairs, splits, repeats, self.run, sample=self.sample
            )
        if given := self._given("splits", "repeats", "sample"):
            raise InputError(f"{given} beside a plan file", fix="write it into the plan")
        plan = load_plan(self.file, jobs)
        return plan if self.run is None else replace(plan, name=run_name(self.run))

    def _given(self, *names: str) -> str:
        """Those of these options that were given."""
        given = [name for name in names if getattr(self, name) not in (None, "")]
        return ", ".join("a plan file" if name == "file" else f"--{name}" for name in given)
