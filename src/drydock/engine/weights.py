"""Weights on their way from the trainer to a sampler: one safetensors file and a fingerprint.

The file holds each distinct tensor once: tied parameters (an output head that is the embedding) appear under the
first of their names. The sampler copies into its own parameters in place, so every view stays valid, and then
compares: it knows that it holds the policy it was told about, it does not hope so.

Fingerprint: SHA-256 over the sorted tensors' names, dtypes, shapes and bytes.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from drydock.atomic import replace_file
from drydock.engine.lora_settings import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from drydock.errors import EngineError

ADAPTER_TENSOR = re.compile(r"\.lora_(?:A|B|embedding_A|embedding_B)\.")
"""Matches names of adapter tensors within a model; see `drydock.engine.lora`."""


def base_name(name: str) -> str:
    """A tensor's name in the model without adapters (peft moves an adapted layer into a `base_layer`)."""
    return name.replace(".base_layer.", ".").replace(".base_layer", "") if ".base_layer" in name else name


def unique_weights(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name, each distinct tensor once, detached; adapters left out."""
    persistent = model.state_dict(keep_vars=True)
    weights: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in persistent.items():
        if id(tensor) not in seen and not ADAPTER_TENSOR.search(name):
            seen.add(id(tensor))
            weights[base_name(name)] = tensor.detach()
    return weights


def fingerprint(weights: Mapping[str, Tensor]) -> str:
    """Hex digest (32 characters) of names, dtypes, shapes and bytes; independent of order and device."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy() if tensor.numel() else b"")
    return digest.hexdigest()[:32]


def write_weights(weights: Mapping[str, Tensor], path: Path) -> str:
    """Write weights to `path` (a new file under a temporary name, then renamed); their fingerprint."""
    weights = {name: tensor.cpu().contiguous() for name, tensor in weights.items()}
    mark = fingerprint(weights)
    with replace_file(path) as temporary:
        save_file(weights, temporary, metadata={"format": "pt", "fingerprint": mark})
    return mark


def weight_kind(path: Path) -> Literal["whole", "adapter"]:
    """Whether a weight file, or a checkpoint's folder, holds a whole model or an adapter; `whole` if unreadable."""
    if path.is_dir():
        return "adapter" if (path / ADAPTER_CONFIG).is_file() else "whole"
    try:
        with safe_open(path, framework="pt") as file:
            return "adapter" if "peft_config" in (file.metadata() or {}) else "whole"
    except (OSError, SafetensorError):
        return "whole"


def adapter_fingerprint(folder: Path) -> str:
    """Fingerprint of the adapter in a checkpoint's folder. Raises EngineError when it cannot be read."""
    return fingerprint(read_weights(folder / ADAPTER_WEIGHTS))


def read_weights(path: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file. Raises EngineError when it is missing or broken."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise EngineError(f"weight file {path} cannot be read: {error}") from error


@torch.no_grad()
def assign_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy `weights` into the model in place, converting to the model's dtypes.

    Checks before it writes: raises EngineError, the model untouched, when a name is missing, unknown or has
    another shape.
    """
    own = unique_weights(model)
    missing, unknown = own.keys() - weights.keys(), weights.keys() - own.keys()
    if missing or unknown:
        raise EngineError(f"weights do not match the model: missing {_some(missing)}, unknown {_some(unknown)}")
    for name, tensor in own.items():
        if tensor.shape != weights[name].shape:
            raise EngineError(f"weight {name} has shape {tuple(weights[name].shape)}, the model {tuple(tensor.shape)}")
    for name, tensor in own.items():
        tensor.copy_(weights[name])


@torch.no_grad()
def holds_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> bool:
    """Whether the model's parameters are, bit by bit, `weights` converted to its dtypes."""
    return all(
        torch.equal(tensor.reshape(-1).view(torch.uint8), weights[name].to(tensor).reshape(-1).view(torch.uint8))
        for name, tensor in unique_weights(model).items()
    )


def _some(names: set[str]) -> str:
    listed = sorted(names)
    return ", ".join(_head(listed)) or "none"


def _head(names: list[str]) -> Iterator[str]:
    yield from names[:3]
    if len(names) > 3:
        yield f"and {len(names) - 3} more"
