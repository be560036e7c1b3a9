"""Whether Slurm's accounting sees jobs that share: they hold gres/mps, not gres/gpu."""

import re
from collections.abc import Iterator, Mapping

from advisor.errors import SourceError
from advisor_node.slurm.matching.slurm import SlurmCommand, settings_of

OK = "ok"

_LIMITS = ("GrpTRES", "GrpTRESMins", "GrpTRESRunMins", "MaxTRES", "MaxTRESMins")
_OF_QOS = (*_LIMITS, "MaxTRESPU", "MaxTRESPA")
_WEIGHT = re.compile(r"(gres/(?:gpu(?::[^=,]*)?|mps))=([0-9.]+)", re.IGNORECASE)
_COUNT = re.compile(r"gres/gpu(:[^=,]*|)=([0-9]+)")


def _faults_of(config: Mapping[str, str], partitions: str, ask: SlurmCommand) -> Iterator[str]:
    """Why jobs that share would pass by the books, one after the other; with what to do.

    Args:
        config: Settings of `scontrol show config`.
        partitions: What `scontrol show partition -o` prints.
        ask: Runs `sacctmgr`.
    """
    if not config.get("AccountingStorageType", "").endswith("slurmdbd"):
        return  # there are no books
    if "gres/mps" not in config.get("AccountingStorageTRES", "").split(","):
        yield "gres/mps is not in AccountingStorageTRES of slurm.conf: add it beside gres/gpu"
    yield from _unweighed(partitions)
    if "limits" in config.get("AccountingStorageEnforce", ""):
        yield from _unlimited(ask)


def books(ask: SlurmCommand) -> str:
    """`ok`, or why nothing may be rewritten.

    Raises:
        SourceError: Slurm does not answer.
    """
    config = settings_of(ask("scontrol", "show", "config"))
    return next(_faults_of(config, ask("scontrol", "show", "partition", "-o"), ask), OK)


def _unweighed(partitions: str) -> Iterator[str]:
    """A GPU that is billed, and its hundredth that is not."""
    for line in partitions.splitlines():
        name, weights = (_word(line, key) for key in ("PartitionName", "TRESBillingWeights"))
        given = {key.lower(): float(weight) for key, weight in _WEIGHT.findall(weights)}
        # A GPU counts as itself and as one of its type; gres/mps has no types.
        of_types = (given[key] for key in given if key.startswith("gres/gpu:"))
        whole = given.get("gres/gpu", 0.0) + max(of_types, default=0.0)
        part = given.get("gres/mps", 0.0)
        if abs(whole - 100 * part) > 0.01 * whole:
            wanted = f"GRES/mps={whole / 100:g}"
            yield f"partition {name} bills GRES/gpu={whole:g} and GRES/mps={part:g}: write {wanted}"


def _unlimited(ask: SlurmCommand) -> Iterator[str]:
    """A limit on GPUs that has none on their parts beside it."""
    for kind, key, limits in (("assoc", "Account,User", _LIMITS), ("qos", "Name", _OF_QOS)):
        text = ask("sacctmgr", "-nP", "show", kind, f"format={key},{','.join(limits)}")
        for line in text.splitlines():
            cells = line.split("|")
            names, values = cells[: -len(limits)], cells[-len(limits) :]
            for limit, value in zip(limits, values, strict=True):
                if (counts := dict(_COUNT.findall(value))) and "gres/mps=" not in value:
                    who = " ".join(name for name in names if name)
                    gpus = int(counts.get("", 0)) or sum(map(int, counts.values()))
                    wanted = f"gres/mps={100 * gpus}"
                    yield f"{kind} {who} has {limit}={value} without gres/mps: add {wanted}"


def _word(line: str, key: str) -> str:
    found = re.search(rf"(?:^|\s){key}=(\S*)", line)
    return found[1] if found else ""


def all_faults(ask: SlurmCommand) -> list[str]:
    """All faults, for `advisor doctor`.

    Raises:
        SourceError: Slurm does not answer.
    """
    config = settings_of(ask("scontrol", "show", "config"))
    if not config:
        raise SourceError("`scontrol show config` says nothing")
    return list(_faults_of(config, ask("scontrol", "show", "partition", "-o"), ask))
