"""The cluster: settings, partitions and nodes, and what the plugin is told of them."""

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.errors import InputError, SourceError
from advisor_node.slurm.queue import SlurmCommand, number, rows, settings_of

_SETTING = re.compile(r"\s*([a-z_]+)\s*=\s*(.*?)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSettings:
    """What advisor.conf says.

    Attributes:
        address: Of the service.
        wait_s: How long a job waits for others before it may start alone.
        gpu_model: None: the one that all profiles have in common.
        facts: File by which the plugin is told of the site.
    """

    address: str
    wait_s: int
    gpu_model: str | None
    facts: Path


def read_settings_file(path: Path) -> SiteSettings:
    """The settings in a file.

    Raises:
        InputError: it cannot be read, or what it says cannot be meant.
    """
    # setup.sh writes it with the rest.
    with InputError.instead_of(
        OSError, f"{path} cannot be read", fix="install as docs/slurm.md says"
    ):
        lines = path.read_text().splitlines()
    given = {found[1]: found[2] for line in lines if (found := _SETTING.fullmatch(line))}
    for name, pattern in (("address", r"(https?|unix):\S+"), ("wait_s", r"[0-9]{1,6}"),
                          ("facts", r"/\S+")):  # fmt: skip
        if not re.fullmatch(pattern, given.get(name, "")):
            raise InputError(f"{path}: {name} = {given.get(name, '')} is not valid")
    return SiteSettings(
        address=given["address"],
        wait_s=int(given["wait_s"]),
        gpu_model=given.get("gpu_model"),
        facts=Path(given["facts"]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition.

    Attributes:
        is_default: Jobs that name none go there.
        default_min, most_min: Time limit of jobs that say none, and the longest; None: no limit.
        cpus, memory_mib: What a GPU brings by default; None: nothing.
        nodes: Names.
        one_user: A node serves one user at a time.
    """

    name: str
    is_default: bool
    default_min: float | None
    most_min: float | None
    cpus: int | None
    memory_mib: int | None
    one_user: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNode:
    """A node with so many GPUs; `is_shared` where each is counted as gres/mps of 100 as well.

    Types are those of its GPUs in gres.conf, an empty one of those that have none.
    """

    name: str
    partitions: tuple[str, ...]
    free_cpus: int
    gpus: int
    is_shared: bool
    types: frozenset[str] = frozenset()


def read_partitions(ask: SlurmCommand) -> Mapping[str, Partition]:
    """All partitions, by name."""
    of_all = settings_of(ask("scontrol", "show", "config")).get("JobDefaults", "")
    lines = ask("scontrol", "show", "partition", "-o").splitlines()
    found = (_partition(line, of_all) for line in lines)
    return {partition.name: partition for partition in found if partition.name}


def read_nodes(ask: SlurmCommand) -> Mapping[str, SlurmNode]:
    """All nodes, by name."""
    try:
        found = rows(ask("sinfo", "--json"), "nodes")
    except SourceError:  # later versions list groups of nodes there, and have these in scontrol
        found = rows(ask("scontrol", "show", "nodes", "--json"), "nodes")
    return {node.name: node for node in map(_node, found)}


def write_facts(
    settings: SiteSettings,
    books: str,
    partitions: Mapping[str, Partition],
    nodes: Sequence[SlurmNode],
    now_s: float,
) -> None:
    """Tell the plugin: a file of lines, complete at any moment."""
    lines = [
        f"written_at = {now_s:.0f}",
        f"user = {os.geteuid()}",
        f"wait_s = {settings.wait_s}",
        f"books = {books}",
    ]
    for name, partition in partitions.items():
        lines.append(f"partition.{name} = {_fact(partition, nodes)}")
        lines += [f"default = {name}"] if partition.is_default else []
    new = settings.facts.with_suffix(".new")
    new.write_text("\n".join(lines) + "\n")
    new.chmod(0o644)
    new.replace(settings.facts)


def _fact(partition: Partition, nodes: Sequence[SlurmNode]) -> str:
    those = [node for node in nodes if partition.name in node.partitions and node.gpus]
    if not those or not all(node.is_shared for node in those):
        return "no GPUs are not counted as mps, 100 for each"
    kinds = {kind for node in those for kind in node.types}
    types = "+".join(kind or "none" for kind in sorted(kinds))
    brings = {"cpus": partition.cpus, "mib": partition.memory_mib, "types": types}
    return " ".join(["ok", *(f"{key}={value}" for key, value in brings.items() if value)])


def _partition(line: str, of_all: str) -> Partition:
    words = dict(word.split("=", 1) for word in line.split() if "=" in word)
    # What a partition says stands behind what is said for all of them, and holds.
    brings = dict(re.findall(r"(Def(?:Cpu|Mem)PerGPU)=([0-9]+)", f"{of_all} {line}"))
    return Partition(
        name=words.get("PartitionName", ""),
        is_default=words.get("Default") == "YES",
        default_min=parse_minutes(words.get("DefaultTime", "")),
        most_min=parse_minutes(words.get("MaxTime", "")),
        cpus=int(brings["DefCpuPerGPU"]) if "DefCpuPerGPU" in brings else None,
        memory_mib=int(brings["DefMemPerGPU"]) if "DefMemPerGPU" in brings else None,
        one_user=words.get("ExclusiveUser") == "YES",
    )


def parse_minutes(text: str) -> float | None:
    """A time limit as Slurm prints it, `days-hours:minutes:seconds`; None: no limit."""
    if not (found := re.fullmatch(r"(?:([0-9]+)-)?([0-9]+):([0-9]+):([0-9]+)", text)):
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return days * 1440 + hours * 60 + minutes + seconds / 60


def _node(row: Mapping[str, object]) -> SlurmNode:
    gres = str(row.get("gres", ""))
    counts = {name: _counts(gres, name) for name in ("gpu", "mps")}
    gpus, mps = (sum(of_types.values()) for of_types in counts.values())
    named: Any = row.get("partitions")
    free = (number(row.get("cpus")) or 0) - (number(row.get("alloc_cpus")) or 0)
    return SlurmNode(
        name=str(row.get("name", "")),
        partitions=tuple(map(str, named or ())),
        free_cpus=int(free),
        gpus=gpus,
        is_shared=gpus > 0 and mps == 100 * gpus,
        types=frozenset(counts["gpu"]),
    )


def _counts(gres: str, name: str) -> Mapping[str, int]:
    """By type, of `gpu:h100:2(S:0),mps:200`."""
    plain = re.sub(r"\([^)]*\)", "", gres)
    found = Counter[str]()
    for kind, count in re.findall(rf"(?:^|,){name}(?::([^:,]+))?:([0-9]+)(?=,|$)", plain):
        found[kind] += int(count)
    return found
