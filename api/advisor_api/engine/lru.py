"""What was used last, as far as it fits: the bounded memory behind quick answers."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Lru(Generic[K, V]):
    """Values by key; when they weigh too much, those that were not used for longest go.

    Args:
        most: What all values may weigh together.
        weight: Of one value; else each weighs 1.
    """

    def __init__(self, most: int, weight: Callable[[V], int] = lambda value: 1) -> None:
        self._most = most
        self._weight = weight
        self._values: OrderedDict[K, V] = OrderedDict()
        self.weighs = 0

    def get(self, key: K) -> V | None:
        """The value, which counts as used now."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        """Keep a value; one that weighs more than everything may is not kept."""
        self.drop(key)
        self._values[key] = value
        self.weighs += self._weight(value)
        while self.weighs > self._most:
            self.drop(next(iter(self._values)))

    def drop(self, key: K) -> None:
        """Forget a value, if it is kept."""
        if (value := self._values.pop(key, None)) is not None:
            self.weighs -= self._weight(value)

    def __len__(self) -> int:
        return len(self._values)
