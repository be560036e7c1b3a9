"""The other GPU of a collective."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from advisor.core.gpu import Gpu
from advisor.errors import BusyError
from advisor.runtime.lock import gpu_lock
from advisor_power.kernels.bench import first_free

GPUS = [Gpu(vendor="amd", index=n, uuid=f"GPU-of-number-{n}", model="MI300X") for n in range(3)]
"""Of this vendor nobody is asked who computes there."""


def test_the_first_that_is_free_is_taken_and_held(tmp_path: Path) -> None:
    with gpu_lock(tmp_path, GPUS[0].uuid), ExitStack() as held:
        assert first_free(GPUS, held, tmp_path) == GPUS[1]
        with ExitStack() as more:
            assert first_free(GPUS, more, tmp_path) == GPUS[2]
            with pytest.raises(BusyError, match="number-2 is being measured"):
                first_free(GPUS, ExitStack(), tmp_path)
    with ExitStack() as held:
        assert first_free(GPUS, held, tmp_path) == GPUS[0]
