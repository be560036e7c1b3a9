"""Names that pods, nodes, webhook, chooser and agent share. docs/kubernetes.md explains them."""

PREFIX = "advisor.dev/"

JOB = "advisor.dev/job"
WITH = "advisor.dev/with"
MIN_SPEED = "advisor.dev/min-speed"
MAX_WAIT_S = "advisor.dev/max-wait-s"
MAX_P99_MS = "advisor.dev/max-p99-ms"
EXPECTED_S = "advisor.dev/expected-s"
WHEN_FULL = "advisor.dev/when-full"
CONTAINER = "advisor.dev/container"
PLACED_BY = "advisor.dev/placed-by"
REQUESTED = frozenset(
    (JOB, WITH, MIN_SPEED, MAX_P99_MS, EXPECTED_S, WHEN_FULL, MAX_WAIT_S, CONTAINER, PLACED_BY)
)
"""Annotations that the author of a pod writes."""

ADVISED_SHARE = "advice.advisor.dev/share-percent"
ADVISED_SPEED = "advice.advisor.dev/speed"
ADVISED_MEMORY = "advice.advisor.dev/memory-mib"
"""Of pods that another scheduler places; they bind nobody."""

SHARE_PERCENT = "advisor.dev/share-percent"
SPLIT = "advisor.dev/split"
"""The shares of all on the GPU, percent, that of the pod itself first, such as `26/50`; or `alone`.
"""

MEMORY_MIB = "advisor.dev/memory-mib"
"""At how much their memory is bounded, MiB, in the same order; of who was there before only its own
is told."""

MEMORY_LIMIT = "advisor.dev/memory-limit"
"""The same of the pod itself, as the driver reads it: `0=12288M`."""

GPU_UUID = "advisor.dev/gpu-uuid"
NODE = "advisor.dev/node"
PARTNER = "advisor.dev/partner"
PARTNER_UID = "advisor.dev/partner-uid"
WHY = "advisor.dev/why"
KAI_PORTION = "gpu-compute.portion"
"""KAI-Scheduler's part of a GPU's compute, 0 to 1 (its issues 2191 and 2192)."""

GATE = "advisor.dev/split"
"""The scheduling gate: a pod stays unscheduled until the chooser has decided."""

MANAGED = "advisor.dev/managed"
"""Label of a pod that the webhook has changed; its value is `true`."""

GPUS = "advisor.dev/gpus"
"""Annotation of a node: a JSON list of `{"uuid", "model", "sm_count", "memory_mib", "ready",
"why"}`."""

GPUS_CHECKED_AT = "advisor.dev/gpus-checked-at"
"""Annotation of a node: when that list was last true. Nobody renews it if the agent is gone."""

HOSTNAME = "kubernetes.io/hostname"

GPU_RESOURCE = "nvidia.com/gpu"

SHARE_RESOURCE = "advisor.dev/share"
"""Extended resource in percent of a GPU, 100 for each: what a pod books of it, whatever its limit.
Quotas and the scheduler count it."""

BOOKED_PERCENT = 50
"""What a pod books that asks for a GPU and says nothing else, so that two have room on one."""

MPS_ROOT = "/run/advisor-mps"
"""On the node, with a folder for each GPU, named by its UUID, in which `pipe` is the daemon's."""

PIPE_MOUNT = "/run/advisor-mps/pipe"
"""In the container: the pipe folder of its own GPU and of no other."""

KUBELET_PODS = "/var/lib/kubelet/pods"
"""On the node: the kubelet's folder, with one for each pod, named by its uid."""

PROGRESS_VOLUME = "advisor-pod"
"""In memory, of the pod's own and bounded; the kubelet makes it, counts it and takes it away."""

PROGRESS_MOUNT = "/run/advisor-pod"
"""In the container, of that volume; the progress file in it is `progress`."""

PROGRESS_FILE = "progress"
