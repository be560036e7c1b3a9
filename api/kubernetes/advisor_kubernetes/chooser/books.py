"""How many GPUs the pods of a namespace may hold, by its quotas.

The API server counts what pods book. Whoever finds no partner holds more than that, a whole GPU,
and this the chooser has to count.
"""

import math
from collections.abc import Iterable, Mapping

from advisor.errors import InputError
from advisor_kubernetes import names
from advisor_kubernetes.objects import Object, part, quantity

SHARES = f"requests.{names.SHARE_RESOURCE}"
GPUS = f"requests.{names.GPU_RESOURCE}"


def gpus_allowed(quotas: Iterable[Object]) -> tuple[Mapping[str, int], Mapping[str, str]]:
    """The most GPUs by namespace, and why that of others is not known.

    A namespace without a quota on GPUs is in neither. One that has a quota on whole GPUs alone is
    held to what that leaves.
    """
    shares: dict[str, int] = {}
    whole: dict[str, int] = {}
    unread: dict[str, str] = {}
    for quota in quotas:
        metadata = quota.get("metadata", {})
        namespace = str(metadata.get("namespace"))
        try:
            if part(quota, "spec").get("scopes") or part(quota, "spec", "scopeSelector"):
                continue  # of some pods only
            hard, used = part(quota, "spec", "hard"), part(quota, "status", "used")
            if SHARES in hard:
                most = math.ceil(quantity(hard[SHARES]) / 100)
                shares[namespace] = min(most, shares.get(namespace, most))
            if GPUS in hard:
                most = max(0, int(quantity(hard[GPUS]) - quantity(used.get(GPUS, 0))))
                whole[namespace] = min(most, whole.get(namespace, most))
        except InputError as error:
            unread[namespace] = f"the quota {metadata.get('name')} cannot be read: {error.what}"
    return {**whole, **shares}, unread
