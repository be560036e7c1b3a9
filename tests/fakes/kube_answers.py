"""What `advisor serve` says of a pair, as far as the chooser reads it."""

from typing import Any

INTERVAL = {"value": 0.5, "low": 0.4, "high": 0.6}
OPTION: dict[str, Any] = {
    "split": "26/50",
    "sharing": "limited",
    "isolates": False,
    "jobs": [
        {
            "job": job,
            "share_percent": share,
            "units": None,
            "rate": INTERVAL,
            "speed": INTERVAL,
            "environment": {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{share:g}"},
        }
        for job, share in (("fft", 26.0), ("gemm", 50.0))
    ],
    "power_w": INTERVAL,
    "memory_power_w": None,
    **dict.fromkeys(("energy_saved", "energy_saved_idle", "gpu_time_saved", "stp"), INTERVAL),
    "cost_saved": None,
    "objectives": {},
    "violations": [],
}
ALONE = {"rate": 1.0, "power_w": 300.0, "memory_used_mib": 1000.0}
ANSWER: dict[str, Any] = {
    "jobs": [{"job": job, "rate_unit": "steps", "alone": ALONE} for job in ("fft", "gemm")],
    "gpu_model": "NVIDIA H200",
    "objective": "energy-efficiency",
    "verdict": "share",
    "choice": OPTION,
    "call": None,
    "candidates": [OPTION],
    "searched": 1,
    "needs": {
        **dict.fromkeys(("memory_mib", "memory_of_mib", "host_cores")),
        **dict.fromkeys(("mps_clients", "mps_clients_most"), 48),
    },
    "same_work": {"work_s": [], "choice": None, "restarted": None, "baselines": {}},
    "reasons": [],
    "warnings": [],
    "coverage": 0.9,
}
