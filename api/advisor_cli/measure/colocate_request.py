"""What `advisor colocate` is to measure, as its options tell it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from advisor.core.job import Job
from advisor.core.records import PairPoint
from advisor.core.wording import listed
from advisor.errors import InputError
from advisor_cli.measure.testbeds import Noise, On, Telemetry, bundled_points, check_engine
from advisor_cli.shared.options import AllowUnsafe, AsJson
from advisor_data.files.bundled import bundled_set_points
from advisor_profiling.campaign.plan import Plan
from advisor_profiling.campaign.plan_file import (
    DEFAULT_SET_SPLITS,
    DEFAULT_SPLITS,
    load_plan,
    plan_from_options,
    run_name,
)
from advisor_profiling.campaign.splits import MOST_JOBS, Member, write_set

_NAMED, _SETS_NAMED = 3, 8
"""How many things of a long list a message names, and sets: people copy one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColocateRequest:
    """What is to be measured."""

    file: Annotated[
        Path | None,
        typer.Argument(help="Plan file (docs/colocate.md); or --among or --pairs", metavar="PLAN"),
    ] = None
    among: Annotated[str, typer.Option(help="All pairs of these jobs, such as a,b,c")] = ""
    pairs: Annotated[str, typer.Option(help="Pairs, such as a+b,c+d")] = ""
    sets: Annotated[
        str,
        typer.Option(
            help=f"Sets of 2 to {MOST_JOBS} jobs, such as a+b+c,a+a+d@50 (d limited to 50 %); or a "
            "number: draw so many of --among, or of all jobs"
        ),
    ] = ""
    seed: Annotated[
        int | None, typer.Option(min=1, help="Which sets are drawn; 1 if not given")
    ] = None
    splits: Annotated[
        str | None,
        typer.Option(
            help="nine, uncapped, time-sliced, 70/70, '66+66 units', 'around-best 8'; "
            f"{DEFAULT_SPLITS} if not given. Of sets: uncapped, time-sliced; {DEFAULT_SET_SPLITS}"
        ),
    ] = None
    sample: Annotated[int | None, typer.Option(min=1, help="Draw this many pairs of --among")] = (
        None
    )
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Windows for each pair and split; 1 if not given")
    ] = None
    run: Annotated[
        str | None, typer.Option(help="Name of the run; a new one measures everything again")
    ] = None

    def plan(self, jobs: Mapping[str, Job]) -> Plan:
        """The plan of a file or of options.

        Raises:
            InputError: there is none, or more than one, or it cannot be understood.
        """
        named = (self.file is not None) + bool(self.among and not self.sets) + bool(self.pairs)
        if named + bool(self.sets) != 1:
            raise InputError(
                "what to measure is not clear",
                fix="give a plan file, or --among, or --pairs, or --sets",
            )
        if self.file is None:
            return self._of_options()
        options = {"splits": self.splits, "repeats": self.repeats, "sample": self.sample}
        options |= {"seed": self.seed}
        if given := [f"--{name}" for name, value in options.items() if value not in (None, "")]:
            raise InputError(
                f"{', '.join(given)} cannot be combined with a plan file",
                fix="write it into the plan",
            )
        plan = load_plan(self.file, jobs)
        return plan if self.run is None else replace(plan, name=run_name(self.run))

    def _of_options(self) -> Plan:
        others = {"sample": self.sample if self.sets else None, "seed": not self.sets and self.seed}
        if wrong := [f"--{name}" for name, value in others.items() if value]:
            raise InputError(
                f"{', '.join(wrong)} has no meaning here",
                fix="--sample draws pairs of --among; --seed says which sets --sets 40 draws",
            )
        default = DEFAULT_SET_SPLITS if self.sets else DEFAULT_SPLITS
        return plan_from_options(
            self.among,
            self.pairs,
            default if self.splits is None else self.splits,
            1 if self.repeats is None else self.repeats,
            self.run,
            sample=self.sample,
            sets=self.sets,
            seed=self.seed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ColocateWhere:
    """Where and how a plan is measured."""

    gpu: Annotated[str, typer.Option(help="Index, UUID, several (0,1) or `replay`")] = "0"
    shard: Annotated[str, typer.Option(help="Part of the plan, such as 2/8")] = "1/1"
    on: On = "here"
    shards: Annotated[
        int, typer.Option(min=0, help="With --on: parts, each for a GPU of some node")
    ] = 0
    window: Annotated[
        float | None, typer.Option(min=0.5, help="Longest window, s; 8 if not given, 5 of sets")
    ] = None
    source: Telemetry = None
    noise: Noise = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be measured, and how long")
    ] = False
    allow_unsafe: AllowUnsafe = False
    as_json: AsJson = False

    def gpus(self) -> list[str]:
        """Each by its index or UUID.

        Raises:
            InputError: there is none.
        """
        gpus = [word.strip() for word in self.gpu.split(",") if word.strip()]
        if not gpus:
            raise InputError(f"--gpu {self.gpu!r} names no GPU", fix="write --gpu 0, or --gpu 0,1")
        return gpus

    def shard_names(self) -> list[str]:
        """What the parts are called that an engine places; none on this host.

        Raises:
            InputError: the options do not go together.
        """
        if (self.on == "here") != (self.shards == 0):
            raise InputError(
                "--on and --shards belong together", fix="write --on slurm --shards 8, or neither"
            )
        check_engine(self.on, self.gpu)
        if self.on != "here" and self.shard != "1/1":
            raise InputError("--shard cannot be combined with --on", fix="give --shards alone")
        return [f"shard-{number}-of-{self.shards}" for number in range(1, self.shards + 1)]


def check_anything(answer: Mapping[str, Any], plan: Plan) -> None:
    """Nothing of the plan can be measured: a mistake in the plan, not a result.

    Raises:
        InputError: every window was skipped.
    """
    skipped = answer["skipped"]
    if answer["windows"] or not skipped:
        return
    why = "; ".join(f"{' + '.join(item['pair'])}: {item['reason']}" for item in skipped[:_NAMED])
    raise InputError(
        f"no window of the plan {plan.name} can be measured",
        why=why + (f"; and {len(skipped) - _NAMED} more" if len(skipped) > _NAMED else ""),
        fix=_recorded(answer, skipped[0]["pair"], plan) if answer["replay"] else "choose others",
    )


def _recorded(answer: Mapping[str, Any], pair: Sequence[str], plan: Plan) -> str:
    """What a replay could have shown, of that pair where it was recorded at all."""
    if plan.has_sets:
        sets = sorted({_set(point) for point in bundled_set_points()}, key=len)
        return f"{len(sets)} sets were recorded, such as {listed(sets[:_SETS_NAMED])}"
    points = (point for point in bundled_points() if isinstance(point, PairPoint))
    known = [point for point in points if point.gpu_model == answer["gpu_model"]]
    if splits := {_split(point) for point in known if point.jobs == tuple(sorted(pair))}:
        return f"of {' + '.join(pair)} were recorded {listed(sorted(splits))}"
    pairs = sorted({"+".join(point.jobs) for point in known})
    return f"{len(pairs)} pairs were recorded, such as {listed(pairs[:_NAMED])}"


def _set(point: PairPoint) -> str:
    return write_set(tuple(Member(part.job, part.share_percent) for part in point.parts))


def _split(point: PairPoint) -> str:
    shares = "/".join(f"{share:g}" for share in point.shares_percent)
    return shares if point.mode == "mps" else point.mode
