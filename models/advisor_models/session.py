"""The ONNX graph of a model as a typed function: the only place that calls onnxruntime."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from advisor.errors import ModelError
from advisor.predict.features import Float32s
from advisor_models.manifest import RETRAIN

_NO_LOG = 4

_ort: Any = importlib.import_module("onnxruntime")
_raised: dict[str, Any] = vars(
    importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
)

_FAILURES = tuple(
    kind for kind in _raised.values() if isinstance(kind, type) and issubclass(kind, Exception)
)
"""Everything onnxruntime raises of itself; its exceptions have no common base of their own."""


@dataclass(frozen=True, slots=True)
class Port:
    """Where a head enters and leaves the graph.

    Attributes:
        name: Of the input, and of the head.
        output: Name of the output.
        columns: Features of the input.
    """

    name: str
    output: str
    columns: int


class Session:
    """One regressor for each head in one graph.

    Args:
        model: The graph as ONNX.
        ports: All inputs and outputs that it must have.

    Raises:
        ModelError: no ONNX graph, other inputs or outputs than these, or it cannot run.
    """

    def __init__(self, model: bytes, ports: Sequence[Port]) -> None:
        try:
            self._session: Any = _ort.InferenceSession(
                model, _options(), providers=["CPUExecutionProvider"]
            )
        except _FAILURES as error:
            raise _wrong("the model is no ONNX graph that can be loaded", error) from error
        inputs = {i.name: (i.type, i.shape[1:]) for i in self._session.get_inputs()}
        outputs = {o.name for o in self._session.get_outputs()}
        wanted = {port.name: ("tensor(float)", [port.columns]) for port in ports}
        if inputs != wanted or outputs != {port.output for port in ports}:
            raise _wrong(f"the model takes {inputs} and gives {sorted(outputs)}")
        self._outputs = {port.name: port.output for port in ports}
        # Another number of rows for each: an output of a fixed or of another length shows here, not
        # in a request.
        numbers = range(len(ports) + 1, 1, -1)
        self({p.name: np.zeros((n, p.columns), np.float32) for n, p in zip(numbers, ports)})  # noqa: B905

    def __call__(self, rows: Mapping[str, Float32s]) -> dict[str, list[float]]:
        """Logarithms for each row, by head.

        Args:
            rows: Features by head, shape (n, features); every head must be asked.

        Raises:
            ModelError: the graph gave something else than one finite number for each row.
        """
        try:
            found = self._session.run([self._outputs[name] for name in rows], dict(rows))
        except _FAILURES as error:
            raise _wrong("the model cannot be run", error) from error
        answers = dict(zip(rows, cast("list[Float32s]", found), strict=True))
        if any(answers[name].shape != (len(asked), 1) for name, asked in rows.items()):
            raise _wrong(f"the model gave shapes {[a.shape for a in answers.values()]}")
        if not all(np.isfinite(answer).all() for answer in answers.values()):
            raise _wrong("the model gave a number that is not finite")
        return {name: answer[:, 0].tolist() for name, answer in answers.items()}


def _options() -> Any:
    options: Any = _ort.SessionOptions()
    # A pair is twenty rows: threads would take longer to wake than to work.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = _NO_LOG  # failures are raised
    return options


def _wrong(what: str, error: Exception | None = None) -> ModelError:
    return ModelError(what, why=str(error) if error else "", fix=RETRAIN)
