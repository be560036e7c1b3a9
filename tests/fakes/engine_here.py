"""An engine without nodes: each shard runs here, one after the other, as on a node with GPU 0."""

import os
from collections.abc import Mapping, Sequence

from advisor_profiling.fanout.shards import Shard, run_shard


class EngineHere:
    """Runs shards while they are submitted."""

    def __init__(self) -> None:
        self.submitted: list[Shard] = []

    def submit(self, shards: Sequence[Shard]) -> None:
        self.submitted += shards
        for shard in shards:
            run_shard(shard, {**os.environ, "CUDA_VISIBLE_DEVICES": "0"})

    def ended(self) -> Mapping[str, str]:
        return {shard.name: "" for shard in self.submitted}

    def stop(self) -> None:
        """Nothing runs."""
