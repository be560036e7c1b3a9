"""Plans from YAML files or from command-line options, and back to YAML.

    name: h200-pairs
    measure:
      - among: [bert-train, triad, gemm, fft]
        splits: [nine, uncapped]

docs/colocate.md has every key and word. A fault names its line, its key and what was expected.
"""

import hashlib
import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import yaml

from advisor.errors import InputError
from advisor.files.names import NAME, RULE
from advisor.formats import yaml_fields as read
from advisor_profiling.campaign.pairing import PairNames
from advisor_profiling.campaign.plan import Plan, PlanEntry, no_such_job
from advisor_profiling.campaign.splits import SplitRequest, read_split, write_splits

DEFAULT_SPLITS = "nine,uncapped"
"""At which pairs are measured where nobody says otherwise."""


def load_plan(path: Path, jobs: Collection[str]) -> Plan:
    """The plan that a file describes; without `name` it is called as the file.

    Raises:
        InputError: the file cannot be read or describes no plan; the message names line and column.
    """
    root = read.load(path)
    readers: Mapping[str, read.FieldReader] = {
        "name": _name,
        "measure": lambda field: _plan_entries(field, jobs),
        "profiles": read.flag,
    }
    fields = read.record(root, readers, required=("measure",))
    name = fields.get("name", path.stem)
    if not NAME.fullmatch(name):
        raise root.fault(f"{name!r} cannot name a run", fix=f"add a name: {RULE}")
    return Plan(name, fields["measure"], fields.get("profiles", False))


def plan_from_options(
    among: str,
    pairs: str,
    splits: str,
    repeats: int = 1,
    name: str | None = None,
    *,
    sample: int | None = None,
) -> Plan:
    """The plan that options of the command line describe.

    Such as "bert-train,triad" or "all" for `among`, "bert-train+triad,gemm+gemm" for `pairs` and
    "nine,uncapped" for `splits`. Without a name the run has one that the same options always give.

    Raises:
        InputError: there is nothing to measure, or an option cannot be understood.
    """
    every = _flat(read_split(word, "--splits") for word in _words(splits))
    named = tuple(_pair_option(text) for text in _words(pairs))
    jobs = "all" if among.strip() == "all" else _words(among)
    if not every or not (jobs or named):
        raise InputError(
            f"there is nothing to measure: jobs {among!r}, pairs {pairs!r}, splits {splits!r}",
            fix="give splits, and jobs (all pairs of them) or pairs such as bert-train+triad",
        )
    entries = (
        PlanEntry(among=jobs, splits=every, repeats=repeats, sample=sample),
        PlanEntry(pairs=named, splits=every, repeats=repeats),
    )
    plan = Plan("", tuple(entry for entry in entries if entry.among or entry.pairs))
    if name is None:
        digest = hashlib.sha256(to_yaml(plan).encode()).hexdigest()
        return replace(plan, name=f"pairs-{digest[:8]}")
    return replace(plan, name=run_name(name))


def run_name(name: str) -> str:
    """The name itself.

    Raises:
        InputError: it cannot name a run.
    """
    if not NAME.fullmatch(name):
        raise InputError(f"{name!r} cannot name a run", fix=f"use {RULE}")
    return name


def to_yaml(plan: Plan) -> str:
    """The plan as a file that `load_plan` reads."""
    entries = [_entry_json(entry) for entry in plan.entries]
    content: dict[str, Any] = {"name": plan.name, "measure": entries}
    if plan.profiles:
        content["profiles"] = True
    return yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=100)


def _name(field: read.YamlField) -> str:
    name = read.text(field)
    if not NAME.fullmatch(name):
        raise field.expected(RULE)
    return name


def _plan_entries(field: read.YamlField, jobs: Collection[str]) -> tuple[PlanEntry, ...]:
    return tuple(_plan_entry(item, jobs) for item in _items(field, "a list of what to measure"))


def _plan_entry(field: read.YamlField, jobs: Collection[str]) -> PlanEntry:
    readers: Mapping[str, read.FieldReader] = {
        "among": lambda field: _among(field, jobs),
        "pairs": lambda field: _pairs(field, jobs),
        "sample": read.count,
        "selves": read.flag,
        "splits": _splits,
        "repeats": read.count,
    }
    values = read.record(field, readers, required=("splits",))
    if ("among" in values) == ("pairs" in values):
        got = "both" if "pairs" in values else "neither"
        raise field.fault(f"expected among or pairs, got {got}")
    for key in ("sample", "selves"):
        if key in values and "pairs" in values:
            raise read.entries(field)[key].fault("has a meaning only together with among")
    return PlanEntry(**values)


def _among(field: read.YamlField, jobs: Collection[str]) -> tuple[str, ...] | Literal["all"]:
    if not field.is_list and read.text(field) == "all":
        return "all"
    return tuple(_job(item, jobs) for item in _items(field, "all, or a list of jobs"))


def _pairs(field: read.YamlField, jobs: Collection[str]) -> tuple[PairNames, ...]:
    return tuple(_pair(item, jobs) for item in _items(field, "a list of pairs"))


def _pair(field: read.YamlField, jobs: Collection[str]) -> PairNames:
    items = _items(field, "a pair such as [bert-train, triad]")
    if len(items) != 2:
        raise field.fault(f"expected two jobs, got {len(items)}")
    return _job(items[0], jobs), _job(items[1], jobs)


def _job(field: read.YamlField, jobs: Collection[str]) -> str:
    name = read.text(field)
    if name not in jobs:
        error = no_such_job(name, jobs)
        raise field.fault(error.what, error.fix)
    return name


def _splits(field: read.YamlField) -> tuple[SplitRequest, ...]:
    items = _items(field, "a list of splits such as [nine, uncapped]")
    return _flat(read_split(read.text(item), _where(item)) for item in items)


def _items(field: read.YamlField, what: str) -> list[read.YamlField]:
    """The entries of a list that is not empty."""
    if not isinstance(field.node, yaml.SequenceNode):
        raise field.expected(what)
    if not field.node.value:
        raise field.fault(f"expected {what}, got an empty one")
    return [read.YamlField(field.path, field.key, node) for node in field.node.value]


def _where(field: read.YamlField) -> str:
    mark = field.node.start_mark
    return f"{field.path}:{mark.line + 1}:{mark.column + 1}: {field.key}"


def _flat(splits: Iterable[tuple[SplitRequest, ...]]) -> tuple[SplitRequest, ...]:
    return tuple(dict.fromkeys(itertools.chain.from_iterable(splits)))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for part in text.split(",") if (word := part.strip()))


def _pair_option(text: str) -> PairNames:
    names = [name.strip() for name in text.split("+")]
    if len(names) != 2 or not all(names):
        raise InputError(f"--pairs: expected two jobs such as bert-train+triad, got {text!r}")
    return names[0], names[1]


def _entry_json(entry: PlanEntry) -> dict[str, Any]:
    written = {
        "pairs": [list(names) for names in entry.pairs],
        "among": entry.among if entry.among == "all" else list(entry.among),
        "sample": entry.sample,
        "selves": None if entry.selves else False,
        "splits": write_splits(entry.splits),
        "repeats": entry.repeats if entry.repeats > 1 else None,
    }
    return {key: value for key, value in written.items() if value not in (None, [])}
