"""A server without a GPU that shows Prometheus what it does, as fast as its share allows.

It becomes a client of the fake MPS as `fake_job.py` does; its tokens and latencies are on a page of
prometheus_client's own exposition. With a second argument nobody asks it for so many seconds, and
its page has no counter until then.
"""

import os
import sys
import time

from answering_fake import compute
from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server

TOKENS = 8
STEPS_PER_S = 200.0
"""At 100 %; each makes so many tokens."""

LATENCY_S = 0.08


def main() -> None:
    share = float(os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100"))
    compute()
    registry = CollectorRegistry()
    tokens = Counter("fake:generation_tokens", "Tokens.", ["engine"], registry=registry)
    took = Histogram("fake:e2e_seconds", "Latencies.", registry=registry, buckets=(0.05, 0.1, 1))
    time.sleep(0.6)  # nobody answers while the weights are loaded
    start_http_server(int(sys.argv[1]), "127.0.0.1", registry)
    time.sleep(float(sys.argv[2]) if len(sys.argv) > 2 else 0)
    while True:
        time.sleep(100 / share / STEPS_PER_S)
        tokens.labels("0").inc(TOKENS)
        took.observe(LATENCY_S)


if __name__ == "__main__":
    main()
