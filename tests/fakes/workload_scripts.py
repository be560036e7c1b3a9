"""Loads the workload scripts that need no PyTorch; they belong to no package."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

WORKLOADS = Path(__file__).parents[2] / "profiling" / "workloads"


def load(name: str) -> Any:
    if str(WORKLOADS) not in sys.path:
        sys.path.append(str(WORKLOADS))  # where a script finds what lies next to it
    spec = importlib.util.spec_from_file_location(name, WORKLOADS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
