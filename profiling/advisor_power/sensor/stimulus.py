"""The load that is switched on and off so that readings show how they are made.

Idle and a flat step show noise and slow windows. Short bursts at random distances hit every phase
of a sensor that looks at a part of the time. Square waves near its period show whether the energy
counter looks all the time: at that period one that does not sees the same phase again and again.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from advisor_power.sensor.trace import SpanS

IDLE, FLAT, BURSTS, WAVE, LOCKED_WAVE = "idle", "flat", "bursts", "wave", "locked-wave"
"""Names of stages: a locked wave has the period of the sensor."""

LONGEST_S = 240.0
"""What all stages together may take."""

LONGEST_PERIOD_S = 0.5
"""Sensors slower than that are not measured: a wave would be too few of their readings."""

_STEP_S = 4.0
_BURSTS, _BURST_S, _GAPS_S = 150, 0.009, (0.25, 0.42)
_WAVE_S, _PHASES = 6.0, 20
_OTHER_PERIODS = (1 / 2, 2 / 3, 3 / 2)


@dataclass(frozen=True, slots=True)
class LoadStage:
    """A stretch of the stimulus."""

    name: str
    length_s: float
    on: tuple[SpanS, ...] = ()
    """When the load runs, s from the beginning of the stage."""


def steps_and_bursts(seed: int) -> tuple[LoadStage, ...]:
    """What needs no knowledge of the sensor: 4 s idle, 4 s of load, 150 bursts."""
    draw = random.Random(seed)
    end_s, bursts = 0.0, list[SpanS]()
    for _ in range(_BURSTS):
        start_s = end_s + draw.uniform(*_GAPS_S)
        end_s = start_s + _BURST_S
        bursts.append((start_s, end_s))
    return (
        LoadStage(IDLE, _STEP_S),
        LoadStage(FLAT, _STEP_S, ((0.0, _STEP_S),)),
        LoadStage(BURSTS, end_s + _GAPS_S[0], tuple(bursts)),
    )


def waves(period_s: float, seed: int) -> tuple[LoadStage, ...]:
    """Square waves, half of the time on, at and around the period of the sensor.

    Args:
        period_s: Between two changes of the reading, at most `LONGEST_PERIOD_S`.
        seed: Of the phases at which those of the sensor's own period begin.
    """
    draw = random.Random(seed)
    others = [_wave(WAVE, part * period_s, 0.0) for part in _OTHER_PERIODS]
    locked = [_wave(LOCKED_WAVE, period_s, draw.uniform(0, period_s)) for _ in range(_PHASES)]
    return (*others, *locked)


def planned_s(stages: Sequence[LoadStage]) -> float:
    """What the stages take, s."""
    return sum(stage.length_s for stage in stages)


def _wave(name: str, period_s: float, first_s: float) -> LoadStage:
    starts = [first_s + k * period_s for k in range(int(_WAVE_S / period_s))]
    return LoadStage(name, first_s + _WAVE_S, tuple((s, s + period_s / 2) for s in starts))
