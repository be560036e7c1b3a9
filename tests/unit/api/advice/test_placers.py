"""What is pasted into placers keeps what their schemas ask for, written down here in our words."""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
import yaml

from advisor.core.gpu import MEMORY_LIMIT, MEMORY_MIB, PERCENTAGE, PRIORITY
from advisor.decide.decision import Decision
from advisor.errors import InputError
from advisor_advice.ask import advise
from advisor_advice.placers import PLACERS, pasted

CARD_MIB = MEMORY_MIB["NVIDIA H200"]

WAYS: Mapping[str, tuple[tuple[str, ...], bool]] = {
    "limits": (("bert-serve-30", "llm-serve-30"), False),
    "low priority": (("bert-serve-30", "triad"), False),
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


def objects(lines: tuple[str, ...]) -> list[Any]:
    return list(yaml.safe_load_all("\n".join(lines)))


def env(pod: Any) -> dict[str, str]:
    listed = pod["spec"]["containers"][0].get("env", [])
    found = {one["name"]: one["value"] for one in listed}
    assert len(found) == len(listed)
    check_variables(found)
    return found


def check_variables(found: Mapping[str, object]) -> None:
    """MPS takes a percentage from 1 to 100, memory by device, and 0 or 1 as priority."""
    forms = {PERCENTAGE: r"[1-9]\d?|100", MEMORY_LIMIT: r"0=[1-9]\d*M", PRIORITY: "[01]"}
    assert found.keys() <= forms.keys()
    assert all(re.fullmatch(forms[name], str(text)) for name, text in found.items())


def check_ray(lines: tuple[str, ...]) -> int:
    """Parts in steps of 1/10000 (`ray._common.ray_option_utils`), variables as text."""
    booked = 0.0
    for line in lines:
        form = re.fullmatch(r"num_gpus=(0\.\d{1,4}), runtime_env=(\{.*\})  # \S+", line)
        assert form, line
        booked += float(form[1])
        assert 0.0001 <= float(form[1]) < 1
        (runtime,) = json.loads(form[2]).items()
        assert runtime[0] == "env_vars"
        check_variables(runtime[1])
    assert 0.999 < booked <= 1 + 1e-9
    return len(lines)


def check_kai(lines: tuple[str, ...]) -> int:
    """Memory or a fraction below 1, never both, and no whole GPU beside them."""
    pods = objects(lines)
    for pod in pods:
        assert pod["spec"]["schedulerName"] == "kai-scheduler"
        ((name, text),) = pod["metadata"]["annotations"].items()
        assert name == "gpu-memory"
        assert text.isdecimal()
        env(pod)
        assert "resources" not in pod["spec"]["containers"][0]
    assert sum(int(pod["metadata"]["annotations"]["gpu-memory"]) for pod in pods) <= CARD_MIB
    return len(pods)


def check_hami(lines: tuple[str, ...]) -> int:
    """Whole numbers; 100 cores ask for the card alone, and more than 100 together never meet."""
    limits = [pod["spec"]["containers"][0]["resources"]["limits"] for pod in objects(lines)]
    for one in limits:
        assert one["nvidia.com/gpu"] == 1
        assert 1 <= one.get("nvidia.com/gpucores", 1) < 100
        assert one.keys() <= {f"nvidia.com/{name}" for name in ("gpu", "gpumem", "gpucores")}
    assert sum(one.get("nvidia.com/gpucores", 0) for one in limits) <= 100
    assert sum(one["nvidia.com/gpumem"] for one in limits) <= CARD_MIB
    return len(limits)


def check_ecs(lines: tuple[str, ...]) -> int:
    """`nvidiaMps` has a memory from 1 MiB on, and at most 100 percent."""
    task = json.loads("\n".join(lines))
    assert task.keys() == {"containerDefinitions"}
    memory_mib = 0
    for container in task["containerDefinitions"]:
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,255}", container["name"])
        (gpu,) = container["resourceRequirements"]
        assert gpu.keys() == {"type", "sharingStrategy"}
        assert gpu["type"] == "GPU"
        part = gpu["sharingStrategy"]["nvidiaMps"]
        assert part.keys() <= {"memory", "maxComputePercent"}
        assert 1 <= part.get("maxComputePercent", 100) <= 100
        memory_mib += part["memory"]
        check_variables({one["name"]: one["value"] for one in container["environment"]})
    assert 0 < memory_mib <= CARD_MIB
    return len(task["containerDefinitions"])


def check_dra(lines: tuple[str, ...]) -> int:
    """One claim, whose default no pod exceeds: a variable only lowers it."""
    claim, *pods = objects(lines)
    assert (claim["apiVersion"], claim["kind"]) == ("resource.k8s.io/v1", "ResourceClaim")
    (request,), (config,) = (claim["spec"]["devices"][key] for key in ("requests", "config"))
    assert config["requests"] == [request["name"]]
    assert config["opaque"]["driver"] == request["exactly"]["deviceClassName"] == "gpu.nvidia.com"
    given = config["opaque"]["parameters"]
    assert (given["apiVersion"], given["kind"]) == ("resource.nvidia.com/v1beta1", "GpuConfig")
    sharing = given["sharing"]
    most = 100
    if sharing["strategy"] == "MPS":
        assert sharing.keys() == {"strategy", "mpsConfig"}
        most = sharing["mpsConfig"]["defaultActiveThreadPercentage"]
    else:
        assert sharing == {
            "strategy": "TimeSlicing",
            "timeSlicingConfig": {"interval": "Default"},
        }
    for pod in pods:
        (named,), (container,) = pod["spec"]["resourceClaims"], pod["spec"]["containers"]
        assert named["resourceClaimName"] == claim["metadata"]["name"]
        assert container["resources"]["claims"] == [
            {"name": named["name"], "request": request["name"]}
        ]
        assert 1 <= int(env(pod).get(PERCENTAGE, most)) <= most <= 100
    return len(pods)


def check_device_plugin(lines: tuple[str, ...]) -> int:
    """Equal replicas for all: a pod asks for one, and lowers its part at most."""
    config, *pods = objects(lines)
    assert config.keys() == {"version", "sharing"}
    assert config["version"] == "v1"
    ((kind, parts),) = config["sharing"].items()
    assert kind in ("mps", "timeSlicing")
    assert parts == {"resources": [{"name": "nvidia.com/gpu", "replicas": len(pods)}]}
    for pod in pods:
        assert pod["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 1}
        assert MEMORY_LIMIT not in env(pod)
    return len(pods)


def check_slurm(lines: tuple[str, ...]) -> int:
    """Counts of one GPU of 100; what is exported stands behind, since the job script runs later."""
    asked = [line for line in lines if line.startswith("#SBATCH --gres=")]
    kinds = [re.fullmatch(r"#SBATCH --gres=(mps|shard):([1-9]\d*)  # \S+", one) for one in asked]
    counts = [int(kind[2]) for kind in kinds if kind]
    assert len(counts) == len(asked)
    assert sum(counts) <= 100
    for line in lines:
        if line not in asked:
            name, _, text = line.removeprefix("export ").partition("=")
            check_variables({name: text})
    return len(asked)


def check_mps(lines: tuple[str, ...]) -> int:
    daemon, *jobs = lines
    assert daemon.startswith("nvidia-cuda-mps-control -d")
    for line in jobs:
        *variables, _command, _mark, _job = line.split()
        check_variables(dict(one.split("=", 1) for one in variables))
    return len(jobs)


CHECKS = {
    "ray": check_ray, "kai": check_kai, "hami": check_hami, "ecs": check_ecs, "dra": check_dra,
    "device-plugin": check_device_plugin, "slurm": check_slurm, "mps": check_mps,
}  # fmt: skip


@pytest.mark.parametrize("placer", PLACERS)
@pytest.mark.parametrize("way", ["limits", "low priority", "four copies", "turns"])
def test_each_form_keeps_the_constraints_of_its_placer(placer: str, way: str) -> None:
    decision = decided(way)
    if way == "turns" and placer in ("ecs", "mps"):
        with pytest.raises(InputError, match="take turns"):
            pasted(placer, decision)
        return
    found = pasted(placer, decision)
    assert CHECKS[placer](found.lines) == len(decision.profiles)
    assert found.cannot
    text = "\n".join(found.lines)
    assert way != "turns" or "CUDA_MPS" not in text
    can_be_low = placer != "hami" and way == "low priority"
    assert (PRIORITY in text) == can_be_low


def test_the_shares_of_the_answer_are_those_that_are_pasted() -> None:
    """bert-serve-30 has 50 % and llm-serve-30 26 %, in each form that has a limit."""
    decision = decided("limits")
    assert decision.way
    assert decision.way.split.shares == (50.0, 26.0)
    for placer, form in {
        "ray": f'"{PERCENTAGE}": "26"', "kai": "value: '26'", "hami": "gpucores: 26",
        "ecs": '"maxComputePercent": 26', "dra": "defaultActiveThreadPercentage: 50",
        "device-plugin": "value: '26'", "slurm": "--gres=mps:26", "mps": f"{PERCENTAGE}=26 ",
    }.items():  # fmt: skip
        assert form in "\n".join(pasted(placer, decision).lines), placer


def test_slurm_lifts_the_percentage_that_its_count_sets() -> None:
    """Two jobs without limits book 50 each, which would hold each to half of the SMs."""
    lines = pasted("slurm", decided("low priority")).lines
    assert lines.count(f"export {PERCENTAGE}=100") == 2
    assert sum("--gres=mps:50" in line for line in lines) == 2


def test_the_device_plugin_says_who_gets_less() -> None:
    lines = pasted("device-plugin", decided("low priority")).lines
    assert "# triad gets 50 % of the SMs, not 100" in lines


def test_jobs_on_gpus_of_their_own_have_nothing_to_paste() -> None:
    assert pasted("ray", decided("apart")).lines == ()
    with pytest.raises(InputError, match="give one of ray, kai, hami"):
        pasted("yarn", decided("apart"))
