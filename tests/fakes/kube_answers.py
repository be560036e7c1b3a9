"""What `advisor serve` says of a pair, as far as the chooser reads it."""

from typing import Any

INTERVAL = {"value": 0.5, "low": 0.4, "high": 0.6}
OPTION: dict[str, Any] = {
    "split": "26/50",
    "sharing": "limited",
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
    "energy_saved": INTERVAL,
    "stp": INTERVAL,
    "objectives": {},
    "violations": [],
}
ALONE = {"rate": 1.0, "power_w": 300.0, "memory_used_mib": 1000.0}
ANSWER: dict[str, Any] = {
    "jobs": [{"job": job, "rate_unit": "steps", "alone": ALONE} for job in ("fft", "gemm")],
    "gpu_model": "NVIDIA H200",
    "objective": "energy-efficiency",
    "choice": OPTION,
    "candidates": [OPTION],
    "same_work": {"work_s": [], "choice": None, "restarted": None, "baselines": {}},
    "picks": {},
    "reasons": [],
    "warnings": [],
    "model": {"version": "v", "gpu_models": []},
    "coverage": 0.9,
}
