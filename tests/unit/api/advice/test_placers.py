"""What is pasted into placers keeps what their schemas ask for, written down here in our words."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from advisor.core.gpu import MEMORY_LIMIT, MEMORY_MIB, PERCENTAGE, PRIORITY, MemoryFit
from advisor.decide.decision import Decision
from advisor.errors import InputError
from advisor_advice.ask import advise
from advisor_advice.placers import PLACERS, Pasted, pasted

CARD_MIB = MEMORY_MIB["NVIDIA H200"]

WAYS: Mapping[str, tuple[tuple[str, ...], bool]] = {
    "limits": (("bert-serve-30", "llm-serve-30"), False),
    "low priority": (("bert-serve-30", "fft"), False),
    "four copies": (("bert-infer-waiting*4",), False),
    "turns": (("bert-serve-30", "llm-serve-30"), True),
    "apart": (("triad", "gemm"), True),
}


@cache
def decided(way: str) -> Decision:
    jobs, isolate = WAYS[way]
    found = advise(*jobs, isolate=isolate)
    assert isinstance(found, tuple)
    return found[0].decision


def words_for(placer: str, d: Decision) -> Pasted:
    return pasted(
        placer,
        d.profiles[0].gpu_model,
        [profile.job for profile in d.profiles],
        d.sharing_option and d.sharing_option.split,
        MemoryFit(tuple(p.memory_used_mib for p in d.profiles), d.request.memory_mib),
        [profile.memory_bound for profile in d.profiles],
    )


# A form: a text is a regular expression, a range holds a number, a tuple has a form for each
# place, a list the alternatives of each element (or of what is no list); `name?` may be missing.
PART, MEMORY = r"[1-9]\d?|100", r"0=[1-9]\d*M"
ENV = [
    {"name": PERCENTAGE, "value": PART},
    {"name": MEMORY_LIMIT, "value": MEMORY},
    {"name": PRIORITY, "value": "[01]"},
]
PARTS = {"resources": ({"name": "nvidia.com/gpu", "replicas": range(2, 8)},)}
CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": r"shared-gpu-[a-z0-9]([a-z0-9-]*[a-z0-9])?"},
    "spec": {
        "devices": {
            "requests": ({"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}},),
            "config?": (
                {
                    "requests": ("gpu",),
                    "opaque": {
                        "driver": "gpu.nvidia.com",
                        "parameters": {
                            "apiVersion": "resource.nvidia.com/v1beta1",
                            "kind": "GpuConfig",
                            "sharing": {
                                "strategy": "MPS",
                                "mpsConfig": {"defaultActiveThreadPercentage": range(1, 101)},
                            },
                        },
                    },
                },
            ),
        }
    },
}
MOUNT = {"name": "mps", "mountPath": "/tmp/nvidia-mps"}  # docs/gpu-sharing/mps of KAI-Scheduler
FORMS: Mapping[str, Any] = {
    # Parts in steps of 1/10000 (`ray._common.ray_option_utils`), variables as text.
    "ray": [
        rf"num_gpus=0\.(?!0+,)\d{{1,4}}, runtime_env=\{{\"env_vars\": \{{"
        rf"(\"({PERCENTAGE}\": \"({PART})|{MEMORY_LIMIT}\": \"{MEMORY}|{PRIORITY}\": \"[01])\""
        r"(, )?)*"
        r"\}\}  # \S+"
    ],
    # Memory or a fraction below 1, never both, and no whole GPU beside them.
    "kai": [
        {
            "metadata": {"annotations": {"gpu-memory": r"[1-9]\d*"}},
            "spec": {
                "schedulerName": "kai-scheduler",
                "volumes?": ({"name": "mps", "hostPath": {"path": "/tmp/nvidia-mps"}},),
                "containers": ({"name": ".+", "env?": ENV, "volumeMounts?": (MOUNT,)},),
            },
        }
    ],
    # Whole numbers; 100 cores ask for the card alone.
    "hami": [
        {
            "spec": {
                "containers": (
                    {
                        "name": ".+",
                        "resources": {
                            "limits": {
                                "nvidia.com/gpu": range(1, 2),
                                "nvidia.com/gpumem": range(1, CARD_MIB),
                                "nvidia.com/gpucores?": range(1, 100),
                            }
                        },
                    },
                )
            }
        }
    ],
    "ecs": {
        "containerDefinitions": [
            {
                "name": r"[a-zA-Z0-9_-]{1,255}",
                "environment": ENV,
                "resourceRequirements": (
                    {
                        "type": "GPU",
                        "sharingStrategy": {
                            "nvidiaMps": {
                                "memory": range(1, CARD_MIB),
                                "maxComputePercent?": range(1, 101),
                            }
                        },
                    },
                ),
            }
        ]
    },
    "dra": [
        CLAIM,
        {
            "spec": {
                "resourceClaims": ({"name": "gpu", "resourceClaimName": "shared-gpu-.+"},),
                "containers": (
                    {
                        "name": ".+",
                        "resources": {"claims": ({"name": "gpu", "request": "gpu"},)},
                        "env?": ENV,
                    },
                ),
            }
        },
    ],
    # Equal replicas for all: a pod asks for one, and lowers its part at most.
    "device-plugin": [
        {"version": "v1", "sharing": [{"mps": PARTS}, {"timeSlicing": PARTS}]},
        {
            "spec": {
                "containers": (
                    {
                        "name": ".+",
                        "resources": {"limits": {"nvidia.com/gpu": range(1, 2)}},
                        "env?": [ENV[0], ENV[2]],
                    },
                )
            }
        },
    ],
    # Counts of one GPU of 100; what is exported stands behind, since the job script runs later.
    "slurm": [
        r"#SBATCH --gres=(mps|shard):[1-9]\d*  # \S+",
        f"export ({PERCENTAGE}=({PART})|{MEMORY_LIMIT}={MEMORY}|{PRIORITY}=[01])",
    ],
    "mps": [
        "nvidia-cuda-mps-control -d.*",
        rf"({PERCENTAGE}=({PART}) )?({MEMORY_LIMIT}={MEMORY} )?({PRIORITY}=[01] )?COMMAND  # \S+",
    ],
}

BOOKED = {
    "ray": (r"num_gpus=([\d.]+)", 1.0),
    "kai": (r"gpu-memory: '(\d+)'", CARD_MIB),
    "hami": (r"gpumem: (\d+)", CARD_MIB),
    "ecs": (r'"memory": (\d+)', CARD_MIB),
    "slurm": (r"--gres=\w+:(\d+)", 100.0),
}
"""What the jobs book, and how much there is of it."""

JOB = {"ecs": '"nvidiaMps"', "ray": "num_gpus", "slurm": "#SBATCH", "mps": " COMMAND "}
"""What each job has once; in YAML a document of its own."""


def fits(value: Any, form: Any) -> bool:
    """No name twice in a list, and no key but those of the form."""
    if (kind := form.__class__) is dict:
        parts = {name.removesuffix("?"): part for name, part in form.items()}
        needed = {name for name in parts if name in form}
        return needed <= value.keys() <= parts.keys() and all(
            fits(value[name], parts[name]) for name in value
        )
    if kind is tuple:
        return len(value) == len(form) and all(map(fits, value, form))
    if kind is list:
        each = value if hasattr(value, "append") else [value]
        known = [one["name"] for one in each if hasattr(one, "keys") and "name" in one]
        return len({*known}) == len(known) and all(any(fits(v, f) for f in form) for v in each)
    return re.fullmatch(form, value) is not None if kind is str else value in form


@pytest.mark.parametrize("placer", PLACERS)
@pytest.mark.parametrize("way", ["limits", "low priority", "four copies", "turns"])
def test_each_form_keeps_the_constraints_of_its_placer(placer: str, way: str) -> None:
    decision = decided(way)
    if way == "turns" and placer in ("ecs", "mps"):
        with pytest.raises(InputError, match="time-sliced"):
            words_for(placer, decision)
        return
    found = words_for(placer, decision)
    text, number = "\n".join(found.lines), len(decision.profiles)
    read = [*found.lines] if placer in ("ray", "slurm", "mps") else [*yaml.safe_load_all(text)]
    assert fits(read[0] if placer == "ecs" else read, FORMS[placer]), text
    assert text.count(JOB.get(placer, "--- # ")) == number
    pattern, most = BOOKED.get(placer, ("^$", 1.0))
    booked = sum(map(float, re.findall(pattern, text)))
    assert booked <= most + 1e-9
    assert placer != "ray" or booked > 0.999
    assert placer != "device-plugin" or f"replicas: {number}" in text
    # A variable only lowers the default of a claim.
    parts = [
        int(part) for part in re.findall(r"(?:Percentage: |PERCENTAGE\n *value: ')(\d+)", text)
    ]
    assert placer != "dra" or parts[:1] == sorted(parts)[-1:]
    cores = [int(part) for part in re.findall(r"gpucores: (\d+)", text)]
    assert sum(cores) <= 100, "more than 100 together never meet"
    assert found.cannot
    assert way != "turns" or "CUDA_MPS" not in text
    assert (PRIORITY in text) == (placer != "hami" and way == "low priority")
    # Turns are what a claim without a configuration gives; TimeSlicing wants a feature gate.
    assert placer != "dra" or ("GpuConfig" in text) == (way != "turns")
    assert placer != "kai" or text.count("mountPath") == number * (way != "turns")


def test_the_shares_of_the_answer_are_those_that_are_pasted() -> None:
    """bert-serve-30 has 50 % and llm-serve-30 26 %, in each form that has a limit."""
    decision = decided("limits")
    assert decision.sharing_option
    assert decision.sharing_option.split.shares == (50.0, 26.0)
    for placer, form in {
        "ray": f'"{PERCENTAGE}": "26"', "kai": "value: '26'", "hami": "gpucores: 26",
        "ecs": '"maxComputePercent": 26', "dra": "defaultActiveThreadPercentage: 50",
        "device-plugin": "value: '26'", "slurm": "--gres=mps:26", "mps": f"{PERCENTAGE}=26 ",
    }.items():  # fmt: skip
        assert form in "\n".join(words_for(placer, decision).lines), placer


def test_cores_of_hami_are_100_together() -> None:
    """What is over is CardInsufficientCore, and 100 a whole card (pkg/device/nvidia/device.go)."""
    told: Any = {"memory_mib": 9, "part": 0.3, "bound": {}, "variables": {}}
    seats: Any = [SimpleNamespace(job=f"j{n}", percent=n, **told) for n in (70, 60)]
    pods = [yaml.safe_load(pod) for pod in PLACERS["hami"][1](seats, True)]
    cores = [pod["spec"]["containers"][0]["resources"]["limits"] for pod in pods]
    assert [of["nvidia.com/gpucores"] for of in cores] == [53, 46]


def test_slurm_lifts_the_percentage_that_its_count_sets() -> None:
    """Two jobs without limits book 50 each, which would hold each to half of the SMs."""
    lines = words_for("slurm", decided("low priority")).lines
    assert lines.count(f"export {PERCENTAGE}=100") == 2
    assert sum("--gres=mps:50" in line for line in lines) == 2


def test_the_device_plugin_says_who_gets_less() -> None:
    lines = words_for("device-plugin", decided("low priority")).lines
    assert "# fft gets 50 % of the SMs, not 100" in lines


def test_jobs_on_gpus_of_their_own_have_nothing_to_paste() -> None:
    assert words_for("ray", decided("apart")).lines == ()
    with pytest.raises(InputError, match="give one of ray, kai, hami"):
        words_for("yarn", decided("apart"))


@pytest.mark.parametrize("placer", PLACERS)
def test_each_form_has_the_variable_that_bounds_memory(placer: str) -> None:
    """What is an option of the command is said instead."""
    known, growth = decided("limits"), "XLA_PYTHON_CLIENT_PREALLOCATE"
    jax, vllm = known.profiles
    bounds = replace(jax, memory_bound=f"{growth}=false"), replace(vllm, memory_bound="--x 0.4")
    found = words_for(placer, replace(known, profiles=bounds))
    assert "\n".join(found.lines).count(growth) == (placer != "ecs" or 1)
    assert found.cannot[-1].startswith(f"{vllm.job} was profiled with --x 0.4 in its command")
