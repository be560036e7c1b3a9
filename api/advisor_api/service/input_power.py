"""Power by data, as the service tells it: everything may block."""

from pathlib import Path

from advisor.wire.input_power import InputPowerRequest, InputPredictions
from advisor_api.http.errors import not_found


def predict(asked: InputPowerRequest, home: Path) -> InputPredictions:
    """What products are expected to draw.

    Raises:
        InputError: operands cannot be, name a file, or are too large; or a GPU model or a type was
            not measured.
        HTTPException: 404, there is no model.
        ModelError: it is damaged.
    """
    # Filling and counting bits are imported with the first question: most services are asked none.
    from advisor_power.inputs.predicting.sent import NoInputModelError, predicted

    try:
        return predicted(asked, home)
    except NoInputModelError as missing:
        # No fault of the service: it answers all else, and a model may be made at any time.
        raise not_found(f"{missing.what}: {missing.why}", missing.fix) from missing
