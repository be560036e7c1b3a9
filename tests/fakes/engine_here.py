"""An engine without nodes: each shard runs here, one after the other, as on a node with GPU 0."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from advisor_profiling.fanout.node import run_shard
from advisor_profiling.fanout.shards import Shard


class EngineHere:
    """Runs shards while they are submitted."""

    def __init__(self) -> None:
        self.submitted: list[Shard] = []

    def stop_earlier(self) -> None:
        """Nothing outlives a command."""

    def submit(self, shards: Sequence[Shard]) -> None:
        self.submitted += shards
        for shard in shards:
            run_shard(shard, {**os.environ, "CUDA_VISIBLE_DEVICES": "0"})

    def ended(self) -> Mapping[Path, str]:
        return {shard.folder: "" for shard in self.submitted}

    def stop(self) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing is held open."""
