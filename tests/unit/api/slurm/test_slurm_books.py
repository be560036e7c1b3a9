"""Limits and prices of GPUs that jobs with a part of one would pass by."""

import pytest

from advisor_node.slurm.matching.books import faults_of

CONFIG = {
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "AccountingStorageTRES": "gres/gpu,gres/gpu:h200,gres/mps",
    "AccountingStorageEnforce": "limits",
}


@pytest.mark.parametrize(
    ("weights", "limit", "said"),
    [
        ("GRES/gpu:h200=100,GRES/mps=1", "gres/gpu:h200=4,gres/mps=400", ""),
        ("GRES/gpu=50,GRES/gpu:h200=50,GRES/gpu:a100=20,GRES/mps=1", "", ""),
        ("GRES/gpu:h200=100", "", "write GRES/mps=1"),
        ("", "gres/gpu:h200=4", "add gres/mps=400"),
        ("", "cpu=8,gres/gpu:a100=1,gres/gpu:h200=4", "add gres/mps=500"),
        ("", "gres/gpu=6,gres/gpu:h200=4", "add gres/mps=600"),
    ],
)
def test_limits_and_prices_of_a_type_of_gpu_count(weights: str, limit: str, said: str) -> None:
    """A site that names types everywhere would have bounded and billed no job that shares."""
    partitions = f"PartitionName=shared TRESBillingWeights=CPU=1.0,{weights} State=UP"

    def ask(*words: str) -> str:
        return f"work|alice|{limit}||||" if "assoc" in words else ""

    assert [*map(_advice, faults_of(CONFIG, partitions, ask))] == ([said] if said else [])


def _advice(fault: str) -> str:
    return fault.split(": ")[-1]
