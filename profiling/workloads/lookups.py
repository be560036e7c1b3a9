"""Networks that look rows up in tables too large for any cache: embeddings, a recommender.

`size` is the rows of a table. Tables are random and stay in GPU memory, which rows are read comes
with each request.
"""

import itertools

import torch
from tensor_ops import EMBEDDING_WIDTH, LOOKUPS_PER_BAG
from torch import nn
from torch.nn import functional
from transformers_models import Inputs, Model

BAGS = 8192
CANDIDATES = 4096
"""What one request asks for; 8 with `tiny`."""
NUMBERS, CATEGORIES, WIDTH = 13, 26, 64
"""Of a candidate, as in Criteo's data: so many numbers, and a row of each of so many tables."""


class Embedding(nn.Module):
    """Sums of rows, one for each bag."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, EMBEDDING_WIDTH)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Shape of the rows: (requests, bags, rows of a bag)."""
        return functional.embedding_bag(rows.flatten(0, 1), self.table.weight, mode="sum")


class Recommender(nn.Module):
    """The deep learning recommendation model (Naumov et al. 2019): a score for each candidate."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        vectors = CATEGORIES + 1
        pairs = [vectors * a + b for a, b in itertools.combinations(range(vectors), 2)]
        self.table = nn.Embedding(CATEGORIES * rows, WIDTH)
        self.numbers = _mlp(NUMBERS, 512, 256, WIDTH)
        self.score = _mlp(WIDTH + len(pairs), 1024, 1024, 512, 256, 1)
        self.register_buffer("first_rows", torch.arange(CATEGORIES) * rows)
        self.register_buffer("pairs", torch.tensor(pairs))

    def forward(self, numbers: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Shapes: (requests, candidates, numbers or categories)."""
        dense = self.numbers(numbers)
        vectors = torch.cat([dense.unsqueeze(-2), self.table(rows + self.first_rows)], dim=-2)
        products = (vectors @ vectors.mT).flatten(-2)[..., self.pairs]
        return self.score(torch.cat([dense, products], dim=-1))


def embedding(tiny: bool, size: int) -> Model:
    """32 random rows for each bag."""

    def inputs(batch: int, rows: int) -> Inputs:
        return {"rows": _rows(rows, batch, 8 if tiny else BAGS, LOOKUPS_PER_BAG)}

    return Model(Embedding(size), inputs)


def recommender(tiny: bool, size: int) -> Model:
    """Normally distributed numbers, and rows that are all as likely."""

    def inputs(batch: int, rows: int) -> Inputs:
        shape = batch, 8 if tiny else CANDIDATES
        return {"numbers": torch.randn(*shape, NUMBERS), "rows": _rows(rows, *shape, CATEGORIES)}

    return Model(Recommender(size), inputs)


BUILDERS = {"embedding": embedding, "recommender": recommender}


def _rows(rows: int, *shape: int) -> torch.Tensor:
    # 32 bits: half of what the host has to send.
    return torch.randint(rows, shape, dtype=torch.int32)


def _mlp(*widths: int) -> nn.Sequential:
    layers = (
        layer for pair in itertools.pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())
    )
    return nn.Sequential(*layers)[:-1]
