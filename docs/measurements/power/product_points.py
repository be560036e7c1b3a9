"""Pairs of a matrix product, of several data, and a partner: what data_pairs.py measures."""

from advisor.core.records import PairPoint

RANDOM = "product-random"
OPERANDS = {
    RANDOM: "normal(0,1)",
    "product-relu": 'a=file("relu-after.npy"); b=file("weight-relu-after.npy")',
    "product-layernorm": 'a=file("layernorm-after.npy"); b=file("weight-up-after.npy")',
    "product-softmax": 'a=file("softmax-after.npy"); b=file("values-transposed-after.npy")',
    "product-half-zeros": "normal(0,1)|sparse(0.5)",
}
"""What is multiplied; those of a network first, so that what is not reached is made up."""


def product_of(point: PairPoint) -> str:
    """Its job that is a product."""
    return next(job for job in point.jobs if job in OPERANDS)


def partner_of(point: PairPoint) -> str:
    """The other one."""
    return next(job for job in point.jobs if job not in OPERANDS)


def split_of(point: PairPoint) -> str:
    """The product's share first."""
    shares = dict(zip(point.jobs, point.shares_percent, strict=True))
    return f"{shares[product_of(point)]:g}/{shares[partner_of(point)]:g}"
