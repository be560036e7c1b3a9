"""The ONNX graph of a model as a typed function: the only place that calls onnxruntime."""

import importlib
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from advisor.errors import ModelError
from advisor.predict.features import Float32s
from advisor_models.manifest import RETRAIN

SPEED, POWER = "speed", "power"
LOG_KEPT, LOG_POWER_RATIO = "log_kept", "log_power_ratio"

_NO_LOG = 4

_ort: Any = importlib.import_module("onnxruntime")
_raised: dict[str, Any] = vars(
    importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
)

_FAILURES = tuple(
    kind for kind in _raised.values() if isinstance(kind, type) and issubclass(kind, Exception)
)
"""Everything onnxruntime raises of itself; its exceptions have no common base of their own."""


class Session:
    """Two regressors in one graph.

    Args:
        model: The graph as ONNX.
        columns: Features of the input `speed` and of the input `power`.

    Raises:
        ModelError: no ONNX graph, other inputs or outputs than these, or it cannot run.
    """

    def __init__(self, model: bytes, columns: Mapping[str, int]) -> None:
        try:
            self._session: Any = _ort.InferenceSession(
                model, _options(), providers=["CPUExecutionProvider"]
            )
        except _FAILURES as error:
            raise _wrong("the model is no ONNX graph that can be loaded", error) from error
        inputs = {i.name: (i.type, i.shape[1:]) for i in self._session.get_inputs()}
        outputs = {o.name for o in self._session.get_outputs()}
        wanted = {name: ("tensor(float)", [count]) for name, count in columns.items()}
        if inputs != wanted or outputs != {LOG_KEPT, LOG_POWER_RATIO}:
            raise _wrong(f"the model takes {inputs} and gives {sorted(outputs)}")
        # Two rows for one: an output of a fixed or of another length shows here, not in a request.
        self(np.zeros((2, columns[SPEED]), np.float32), np.zeros((1, columns[POWER]), np.float32))

    def __call__(self, speed: Float32s, power: Float32s) -> tuple[list[float], list[float]]:
        """Logarithms for each row of `speed` and for each row of `power`.

        Raises:
            ModelError: the graph gave something else than one finite number for each row.
        """
        try:
            found = self._session.run([LOG_KEPT, LOG_POWER_RATIO], {SPEED: speed, POWER: power})
        except _FAILURES as error:
            raise _wrong("the model cannot be run", error) from error
        kept, ratio = cast("list[Float32s]", found)
        if kept.shape != (len(speed), 1) or ratio.shape != (len(power), 1):
            raise _wrong(f"the model gave shapes {kept.shape} and {ratio.shape}")
        if not (np.isfinite(kept).all() and np.isfinite(ratio).all()):
            raise _wrong("the model gave a number that is not finite")
        return kept[:, 0].tolist(), ratio[:, 0].tolist()


def _options() -> Any:
    options: Any = _ort.SessionOptions()
    # A pair is twenty rows: threads would take longer to wake than to work.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = _NO_LOG  # failures are raised
    return options


def _wrong(what: str, error: Exception | None = None) -> ModelError:
    return ModelError(what, why=str(error) if error else "", fix=RETRAIN)
