"""A sensor record as text."""

from collections.abc import Iterator

from advisor.validity.sensor_record import EnergyCounter, SensorRecord
from advisor.validity.sensor_timing import power_timing

_COVERS = {
    True: "it integrates everything",
    False: "it adds up the times at which the sensor looks: use long windows",
    None: "whether it integrates everything is open",
}


def sensor_lines(record: SensorRecord) -> Iterator[str]:
    """What a person reads."""
    yield f"{record.gpu_model}, {record.gpu_uuid}, driver {record.driver}, {record.seconds:.0f} s"
    if record.channels:
        yield (
            f"{'channel':9}{'period ms':>10}{'window ms':>11}{'delay ms':>10}{'+- ms':>7}"
            f"{'noise W':>9}{'halves differ ms':>18}{'waves wrong %':>15}"
        )
    for channel in record.channels:
        yield (
            f"{channel.name:9}{channel.period_ms:10.1f}{channel.window_ms:11.1f}"
            f"{channel.delay_ms:10.1f}{channel.delay_spread_ms / 2:7.1f}{channel.noise_w:9.2f}"
            f"{channel.window_spread_ms:18.2f}"
            f"{100 * channel.prediction_error:15.2f}  "
            f"{'accepted' if channel.accepted else 'not accepted'}"
        )
    for channel in record.channels:
        if channel.response == "exponential":
            yield (
                f"{channel.name} is no mean: it fades exponentially, with a time constant of "
                f"{channel.window_ms / 2:.1f} ms, half of the window"
            )
    if record.energy is not None:
        yield _energy(record.energy)
    for reason in record.reasons:
        yield f"  {reason}"
    if timing := power_timing(record):
        yield (
            f"Power settles in {timing.settle_s:.2f} s; the shortest window is "
            f"{timing.shortest_window_s:.2f} s."
        )
    if not record.accepted:
        yield "Nothing of this is used: measure again on an idle GPU."


def _energy(energy: EnergyCounter) -> str:
    return (
        f"energy counter: every {energy.period_ms:.0f} ms, spread over phases "
        f"{100 * energy.coverage_spread:.2f} %: {_COVERS[energy.covers_everything]}"
    )
