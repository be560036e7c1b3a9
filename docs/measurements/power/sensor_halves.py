"""How far apart are the windows of two halves of a sensor's bursts, drawn at random?

    .venv/bin/python docs/measurements/power/sensor_halves.py

Of each bundled recording the readings in the bursts are halved thirty times, and W of the instant
channel is fitted to both halves; the flat step belongs to both. It shows what the rule "halves
agree within 2 ms" was worth as long as one pair of halves was looked at.
"""

import numpy as np

from advisor_data.files.power_records import bundled_sensors
from advisor_power.sensor.fit import fit_window, refine, sample_of
from advisor_power.sensor.levels import training_levels
from advisor_power.sensor.replay import bundled_trace
from advisor_power.sensor.stimulus import BURSTS

DRAWS, ALLOWED_MS = 30, 2.0


def main() -> None:
    """Print a line for each recording."""
    for record in bundled_sensors():
        trace = bundled_trace(record)
        (bursts,) = trace.named(BURSTS)
        begun_s = trace.stages[0].begun_s
        used = trace.series["instant"].between(begun_s, bursts.ended_s)
        sample = sample_of(used, training_levels(trace))
        place, step = fit_window(sample).place, used.times_s < bursts.begun_s
        random, apart_ms = np.random.default_rng(0), []
        for _ in range(DRAWS):
            half = random.random(len(used.times_s)) < 0.5
            one, other = (
                refine(sample.part(step | part), place, place.window_s / 8).place.window_s
                for part in (half, ~half)
            )
            apart_ms.append(1000 * abs(one - other))
        square, over = np.mean(np.square(apart_ms)), np.mean(np.array(apart_ms) > ALLOWED_MS)
        print(
            f"{record.gpu_model}: {square**0.5:.1f} ms apart (root mean square), most "
            f"{max(apart_ms):.1f}; {over:.0%} of {DRAWS} draws over {ALLOWED_MS:g} ms"
        )


main()
