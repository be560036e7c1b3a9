"""How many GPUs the pods of a namespace may hold, by its quotas.

The API server counts what pods book. Whoever finds no partner holds more than that, a whole GPU,
and this the chooser has to count.
"""

import math
from collections.abc import Iterable, Mapping

from advisor_kubernetes import names
from advisor_kubernetes.objects import Object, part, quantity, word

SHARES = f"requests.{names.SHARE_RESOURCE}"
GPUS = f"requests.{names.GPU_RESOURCE}"


def gpus_allowed(quotas: Iterable[Object]) -> Mapping[str, int]:
    """The most GPUs by namespace; one without a quota on GPUs is not in it.

    A namespace that has a quota on whole GPUs alone is held to what that leaves.

    Raises:
        InputError: a quota cannot be read.
    """
    shares: dict[str, int] = {}
    whole: dict[str, int] = {}
    for quota in quotas:
        if quota.get("spec", {}).get("scopes") or part(quota, "spec", "scopeSelector"):
            continue  # of some pods only
        namespace = word(part(quota, "metadata"), "namespace")
        hard, used = part(quota, "spec", "hard"), part(quota, "status", "used")
        if SHARES in hard:
            most = math.ceil(quantity(hard[SHARES]) / 100)
            shares[namespace] = min(most, shares.get(namespace, most))
        if GPUS in hard:
            most = max(0, int(quantity(hard[GPUS]) - quantity(used.get(GPUS, 0))))
            whole[namespace] = min(most, whole.get(namespace, most))
    return {**whole, **shares}
