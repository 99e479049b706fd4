"""An optimizer's state as named tensors and plain values, and back: what a resumable checkpoint holds of it.

Tensors are called `<key>/<parameter>`; whatever is no tensor goes, by the same names, into a dictionary for JSON.
Settings (rates, decays) are no state: they come from the configuration of whoever resumes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from drydock.errors import EngineError

SHAPED = ("exp_avg", "exp_avg_sq", "momentum_buffer")
"""Keys whose tensors have their parameter's shape."""


@dataclass(frozen=True, slots=True)
class OptimizerState:
    """tensors, values: by `<key>/<parameter>`."""

    tensors: dict[str, Tensor]
    values: dict[str, Any]


def pack_optimizer(optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter]) -> OptimizerState:
    """The state of an optimizer over `parameters`, on the CPU. What entries have in common is copied for each."""
    names = {id(parameter): name for name, parameter in parameters.items()}
    tensors: dict[str, Tensor] = {}
    values: dict[str, Any] = {}
    seen: set[int] = set()
    for parameter, entries in optimizer.state.items():
        for key, value in entries.items():
            name = f"{key}/{names[id(parameter)]}"
            if isinstance(value, Tensor):
                own = value.data_ptr() not in seen
                seen.add(value.data_ptr())
                tensors[name] = value.detach().cpu().contiguous() if own else value.detach().cpu().clone()
            elif value is not None:
                values[name] = value
    return OptimizerState(tensors, values)


def unpack_optimizer(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter], state: OptimizerState, source: str
) -> None:
    """Put a packed state into a fresh optimizer. Raises EngineError when it belongs to other parameters."""
    for name, value in (state.tensors | state.values).items():
        key, _, parameter_name = name.partition("/")
        parameter = parameters.get(parameter_name)
        if parameter is None or (key in SHAPED and value.shape != parameter.shape):
            raise EngineError(f"optimizer state {name} of {source} does not fit the model")
        optimizer.state[parameter][key] = value.to(parameter.device) if isinstance(value, Tensor) else value
