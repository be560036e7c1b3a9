"""Power as field values of NVML: several scopes in one call, and which of them a card has.

Field numbers and scopes are those of nvml.h (NVML_FI_DEV_POWER_*, NVML_POWER_SCOPE_*).
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from advisor.core.telemetry import POWER_GPU, POWER_MEMORY, Channel
from advisor_profiling.telemetry.nvml_errors import NOT_AVAILABLE, nvml_error, reading

AVERAGE, INSTANT = 185, 186
GPU, MEMORY = 0, 2

AVERAGED_S = 1.0
"""What NVML's power averages over, on Ampere and newer except GA100."""

_UNKNOWN_SCOPE = 2
"""NVML_ERROR_INVALID_ARGUMENT: how a driver may answer to a scope that it does not know."""


@dataclass(frozen=True, slots=True)
class _Field:
    number: int
    scope: int
    channel: Channel


_FIELDS = (
    _Field(INSTANT, GPU, Channel(POWER_GPU)),
    _Field(INSTANT, MEMORY, Channel(POWER_MEMORY)),
    _Field(AVERAGE, MEMORY, Channel(POWER_MEMORY, "mean", AVERAGED_S)),
)
"""What is read where the card has it; the first one of a channel that answers."""


class PowerFields:
    """The power fields of one GPU; which ones it has is asked once."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._known: dict[str, _Field] = {}
        for field, milliwatts in zip(_FIELDS, self._ask(_FIELDS), strict=True):
            # A scope without a sensor may also answer 0, which no power of a running GPU is.
            if milliwatts:
                self._known.setdefault(field.channel.name, field)

    @property
    def channels(self) -> tuple[Channel, ...]:
        """What the card has."""
        return tuple(field.channel for field in self._known.values())

    def read(self, names: Collection[str]) -> dict[str, float | None]:
        """Watts of those that it has, in one call; none of them, no call."""
        wanted = [field for name, field in self._known.items() if name in names]
        found = self._ask(wanted) if wanted else []
        return {
            field.channel.name: None if milliwatts is None else milliwatts / 1000
            for field, milliwatts in zip(wanted, found, strict=True)
        }

    def _ask(self, fields: Collection[_Field]) -> list[int | None]:
        asked = [(field.number, field.scope) for field in fields]
        values = reading("nvmlDeviceGetFieldValues", self._device, asked)
        if values is None:
            return [None] * len(asked)
        return [
            milliwatts(field.number, field.scope, value)
            for field, value in zip(fields, values, strict=True)
        ]


def milliwatts(number: int, scope: int, answer: Any) -> int | None:
    """The answer to a power field; None where the card does not have it.

    Raises:
        SourceError: NVML returned an error that is about more than this reading.
    """
    code = answer.nvmlReturn
    unknown = scope != GPU and code == _UNKNOWN_SCOPE
    if code and not unknown and code not in NOT_AVAILABLE:
        raise nvml_error(f"field {number}", code)
    return None if code else int(answer.value.uiVal)
