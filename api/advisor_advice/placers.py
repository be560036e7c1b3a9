"""The chosen option in the words of placers that sites have (docs/recommend.md)."""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.core.gpu import (
    MEMORY_LIMIT,
    PRIORITY,
    WHOLE,
    MemoryFit,
    Share,
    Split,
    read_bound,
    vendor_of,
)
from advisor.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Pasted:
    """What to give one placer.

    Attributes:
        version: Of the placer or its API, whose schema or page the form follows.
        lines: To paste; none: each job asks for a whole GPU.
        cannot: What the placer cannot express, in sentences.
    """

    placer: str
    version: str
    lines: tuple[str, ...]
    cannot: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seat:
    """One of the jobs.

    Attributes:
        percent: Limit of its SMs; 100: none.
        part: Of the GPU, all parts together at most 1: what a placer books that divides it.
        memory_mib: That it may fill, all together no more than the card; None: not known.
        bound: Variables that bound its memory, as in its profile.
        variables: These, and those of MPS unless jobs are time-sliced.
    """

    job: str
    percent: int
    part: float
    memory_mib: int | None
    bound: Mapping[str, str]
    variables: Mapping[str, str]


def pasted(
    placer: str,
    gpu_model: str,
    jobs: Sequence[str],
    split: Split | None,
    memory: MemoryFit,
    memory_bounds: Sequence[str | None] = (),
) -> Pasted:
    """What to give a placer so that jobs share a GPU as advised.

    Args:
        placer: One of `PLACERS`.
        gpu_model: Of the GPU that they share.
        jobs: Their names.
        split: Of the GPU among them; None: each is to have a GPU of its own.
        memory: That they need, and what there is of it.
        memory_bounds: Of each, as its profile has it; empty: none is known.

    Raises:
        InputError: there is no such placer, or it cannot place the jobs so.
    """
    if placer not in PLACERS:
        raise InputError(
            f"{placer!r} is no placer that is known", fix=f"give one of {', '.join(PLACERS)}"
        )
    version, form, cannot = PLACERS[placer]
    if split is None:
        return Pasted(placer=placer, version=version, lines=(), cannot=())
    if vendor_of(gpu_model) == "amd" or split.gpus:
        raise InputError(
            f"the jobs cannot be written for {placer}",
            why="its syntax is for jobs of one NVIDIA GPU",
            fix="leave --as out: `advisor recommend --how` prints how to start them by hand",
        )
    is_mps = split.sharing != "time-sliced"
    if not is_mps and placer in ("ecs", "mps"):
        raise InputError(
            "the jobs should be time-sliced, without MPS",
            why=f"{placer} shares by MPS alone",
            fix="give --as device-plugin, dra, hami, kai, ray or slurm",
        )
    bounds_mib = [memory.limit_mib(n, 100 / len(jobs)) for n in range(len(jobs))]
    bounds = [read_bound(of) for of in memory_bounds or [None] * len(jobs)]
    seats = [
        _Seat(
            job=job,
            percent=(percent := math.ceil(share)),
            # Rounded down: 1 for all is the most.
            part=int(1e4 * share / sum(split.shares)) / 1e4,
            memory_mib=mib,
            bound=bound,
            variables=bound
            | (
                Share(percent, memory_mib=mib, below_normal=is_low).environment(None, "nvidia")
                if is_mps
                else {}
            ),
        )
        for job, (share, is_low), mib, (bound, _) in zip(
            jobs, split.seats, bounds_mib, bounds, strict=True
        )
    ]
    cannot += tuple(f"{job} {how}" for job, (_, how) in zip(jobs, bounds, strict=True) if how)
    return Pasted(
        placer=placer,
        version=version,
        lines=tuple("\n".join(form(seats, is_mps)).splitlines()),
        cannot=cannot,
    )


def _ray(seats: Sequence[_Seat], _is_mps: bool) -> Iterable[str]:
    return (
        f"num_gpus={s.part}, runtime_env={json.dumps({'env_vars': s.variables})}  # {s.job}"
        for s in seats
    )


def _kai(seats: Sequence[_Seat], is_mps: bool) -> Iterable[str]:
    # By its page of MPS the pipes of the node's daemon are mounted.
    path = "/tmp/nvidia-mps"
    # The scheduler takes memory or a fraction, not both.
    return (
        _pod(
            seat.job,
            seat.variables,
            annotations={"gpu-memory": str(seat.memory_mib)}
            if seat.memory_mib
            else {"gpu-fraction": str(seat.part)},
            mounts=[{"name": "mps", "mountPath": path}] * is_mps,
            schedulerName="kai-scheduler",
            volumes=[{"name": "mps", "hostPath": {"path": path}}] * is_mps,
        )
        for seat in seats
    )


def _hami(seats: Sequence[_Seat], _is_mps: bool) -> Iterable[str]:
    limits = [seat.percent for seat in seats if seat.percent < WHOLE]
    # Those of a card are 100 together at most, or its jobs never meet.
    part = min(1.0, WHOLE / sum(limits)) if limits else 1.0
    return (
        _pod(
            seat.job,
            seat.bound,
            limits={
                "nvidia.com/gpu": 1,
                **(
                    {"nvidia.com/gpumem": seat.memory_mib}
                    if seat.memory_mib
                    else {"nvidia.com/gpumem-percentage": int(100 * seat.part)}
                ),
                # 100 would ask for the card alone.
                **(
                    {"nvidia.com/gpucores": int(part * seat.percent)}
                    if seat.percent < WHOLE
                    else {}
                ),
            },
        )
        for seat in seats
    )


def _ecs(seats: Sequence[_Seat], _is_mps: bool) -> Iterable[str]:
    if unknown := [seat.job for seat in seats if not seat.memory_mib]:
        raise InputError(
            f"the memory of {unknown[0]} is not known",
            why="ECS places by memory, which nvidiaMps must name",
            fix=f"measure it: advisor profile {unknown[0]}",
        )
    containers = [
        {
            "name": f"{_in_ascii(seat.job)}-{number}",
            "resourceRequirements": [
                {
                    "type": "GPU",
                    "sharingStrategy": {
                        "nvidiaMps": {"memory": seat.memory_mib, "maxComputePercent": seat.percent}
                    },
                }
            ],
            "environment": _named(
                {k: v for k, v in seat.variables.items() if k == PRIORITY or k in seat.bound}
            ),
        }
        for number, seat in enumerate(seats, start=1)
    ]
    # In one task, or they need not meet.
    return (json.dumps({"containerDefinitions": containers}, indent=2),)


def _dra(seats: Sequence[_Seat], is_mps: bool) -> Iterable[str]:
    most = {"defaultActiveThreadPercentage": max(seat.percent for seat in seats)}
    config = {
        "requests": ["gpu"],
        "opaque": {
            "driver": "gpu.nvidia.com",
            "parameters": {
                "apiVersion": "resource.nvidia.com/v1beta1",
                "kind": "GpuConfig",
                "sharing": {"strategy": "MPS", "mpsConfig": most},
            },
        },
    }
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": (name := f"shared-gpu-{_in_ascii(seats[0].job.lower())}")},
        "spec": {
            "devices": {
                "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}],
                # Pods of one claim are time-sliced by default, without a feature gate.
                **({"config": [config]} if is_mps else {}),
            }
        },
    }
    uses: dict[str, Any] = {
        "claims": [{"name": "gpu", "request": "gpu"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
    }
    return (_yaml(claim), *(_pod(seat.job, seat.variables, **uses) for seat in seats))


def _device_plugin(seats: Sequence[_Seat], is_mps: bool) -> Iterable[str]:
    most = int(WHOLE) // len(seats)
    parts = {"resources": [{"name": "nvidia.com/gpu", "replicas": len(seats)}]}
    return (
        _yaml({"version": "v1", "sharing": {"mps" if is_mps else "timeSlicing": parts}}),
        *(
            f"# {seat.job} gets {most} % of the SMs, not {seat.percent}"
            for seat in seats
            if is_mps and seat.percent > most
        ),
        *(
            _pod(
                seat.job,
                # The daemon bounds memory; a percentage above its own changes nothing.
                {k: v for k, v in seat.variables.items() if k != MEMORY_LIMIT},
                limits={"nvidia.com/gpu": 1},
            )
            for seat in seats
        ),
    )


def _slurm(seats: Sequence[_Seat], is_mps: bool) -> Iterable[str]:
    over = sum(seat.percent for seat in seats) > WHOLE
    for seat in seats:
        # With a count of 100 for each GPU it is a percentage; together they are no more than 100.
        counted = int(100 * seat.part) if over else seat.percent
        yield f"#SBATCH --gres={f'mps:{counted}' if is_mps else 'shard:1'}  # {seat.job}"
        yield from (f"export {name}={text}" for name, text in seat.variables.items())


def _mps(seats: Sequence[_Seat], _is_mps: bool) -> Iterable[str]:
    return (
        "nvidia-cuda-mps-control -d  # once, as the user of all jobs",
        *(
            " ".join((*(f"{k}={v}" for k, v in seat.variables.items()), f"COMMAND  # {seat.job}"))
            for seat in seats
        ),
    )


def _pod(
    job: str,
    variables: Mapping[str, str],
    *,
    annotations: Mapping[str, str] | None = None,
    limits: Mapping[str, object] | None = None,
    claims: Sequence[Mapping[str, str]] = (),
    mounts: Sequence[Mapping[str, str]] = (),
    **spec: Any,
) -> str:
    """What matters here of a pod."""
    resources = _given(limits=limits, claims=claims)
    container = _given(name="main", resources=resources, env=_named(variables), volumeMounts=mounts)
    spec = _given(**spec, containers=[container])
    pod = _given(metadata=_given(annotations=annotations), spec=spec)
    return f"--- # {job}\n{_yaml(pod)}"


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}


def _in_ascii(name: str) -> str:
    return re.sub("[^a-zA-Z0-9-]+", "-", name).strip("-")


def _named(variables: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": text} for name, text in variables.items()]


def _yaml(what: Any) -> str:
    import yaml  # an answer without a form loads none

    return yaml.safe_dump(what, sort_keys=False).rstrip()


_NO_DAEMON = "it starts no MPS daemon: without one that both jobs reach, no limit holds"
_OTHERS = "it cannot tie two jobs together: another job may take the rest of the GPU"

PLACERS: Mapping[
    str, tuple[str, Callable[[Sequence[_Seat], bool], Iterable[str]], tuple[str, ...]]
] = {
    "ray": (
        "Ray 2.60.0",
        _ray,
        (
            "num_gpus books a part of a GPU and bounds nothing: the variables do",
            _NO_DAEMON,
            "two actors meet for sure only in one bundle of a placement group, {'GPU': 1}",
        ),
    ),
    "kai": (
        "KAI-Scheduler v0.17.0",
        _kai,
        (
            "gpu-memory and gpu-fraction are memory, which is counted and not enforced",
            "it has no share of SMs: the variables are the limit",
            _NO_DAEMON,
            _OTHERS,
        ),
    ),
    "hami": (
        "HAMi v2.10.0",
        _hami,
        (
            "gpucores delays kernels and reserves no SMs, and adds up to 100 at most on a GPU: "
            "speeds were predicted for MPS",
            "it has no MPS priority",
            _OTHERS,
        ),
    ),
    "ecs": (
        "Amazon ECS API 2014-11-13, NvidiaMpsAllocation",
        _ecs,
        (
            "maxComputePercent is a limit and no reservation, and tasks are placed by memory alone",
            "each process of a container has the whole percentage",
        ),
    ),
    "dra": (
        "dra-driver-nvidia-gpu v0.4.1, for MPS with MPSSupport (alpha), Kubernetes 1.34",
        _dra,
        (
            "one defaultActiveThreadPercentage for all of a claim: lower ones are variables, "
            "which a pod can lift up to it",
            "a pod with its own claim, by a template, does not share",
        ),
    ),
    "device-plugin": (
        "NVIDIA k8s-device-plugin v0.20.0",
        _device_plugin,
        (
            "each of the replicas has an equal part of SMs and memory, which variables only "
            "lower: a job that needs more memory fails",
            "the file counts for all GPUs of a node",
            _OTHERS,
        ),
    ),
    "slurm": (
        "Slurm 22.05 to 26.05.3, gres/mps with a Count of 100 for each GPU",
        _slurm,
        (
            "gres/mps has no memory and no priority: the variables are the limit",
            "srun sets the percentage again from the count: start the command without it",
            "jobs of two users run one after the other: an MPS server serves one user",
            _OTHERS,
        ),
    ),
    "mps": (
        "CUDA MPS, protocol 2 (drivers 470 to 580)",
        _mps,
        ("each process of a job has the whole percentage", "a job can lift its own variables"),
    ),
}
"""By name: version of the schema or page, lines of jobs that share by MPS or time slicing, and what
it cannot express."""
