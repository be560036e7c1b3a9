"""What a caller is told of a body that cannot be used."""

from fastapi.exceptions import RequestValidationError

from advisor_api.http.errors import fault_of

SPEED = ("body", "constraints", "min_speed")


def fault(*place: str, said: str) -> dict[str, object]:
    return {"loc": place, "msg": said, "type": "any"}


def test_names_of_the_library_are_not_repeated() -> None:
    """One sentence for a value that may be a number or a mapping of numbers."""
    error = RequestValidationError(
        [
            fault(*SPEED, "constrained-float", said="Input should be less than or equal to 1"),
            fault(
                *SPEED,
                "dict[constrained-str,constrained-float]",
                said="Input should be a valid dictionary",
            ),
        ]
    )
    assert fault_of(error).message == (
        "body.constraints.min_speed: it should be less than or equal to 1, or it should be a "
        "JSON object."
    )


def test_few_of_many_faults_are_named() -> None:
    """A large body may have thousands."""
    error = RequestValidationError([fault("body", str(n), said="wrong") for n in range(9000)])
    assert fault_of(error).message.count("wrong") < 10
    assert "and " in fault_of(error).message
