"""LoRA adapters on a loaded model (arXiv 2106.09685), with the package peft.

Adapter layers are put into the model in place: the model keeps its class, and every engine part that calls it works
unchanged. Adapters are float32 whatever the base is; W + scale * B A is computed as two products, in the trainer and
in a sampler that holds the adapter, so both compute the same thing. B starts as zeros: a new adapter changes nothing.

Outside, an adapter's tensors have the names of a PEFT file (`base_model.model.<path>.lora_A.weight`), without the name
it has inside the model. An adapter file is such a safetensors file whose metadata also say which configuration, base
and fingerprint belong to it.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peft
import torch
from peft.tuners.lora import LoraLayer
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from drydock.atomic import replace_file
from drydock.engine.checkpoint import read
from drydock.engine.lora_settings import ADAPTER_CONFIG, ADAPTER_WEIGHTS, LoraConfig
from drydock.engine.weights import ADAPTER_TENSOR, base_name, fingerprint, unique_weights
from drydock.errors import ConfigError, EngineError, UserError

DEFAULT = "default"
PREFIX = "base_model.model."


@dataclass(frozen=True, slots=True)
class AdapterFile:
    """What an adapter file holds. base_fingerprint: of the weights it was trained on."""

    settings: LoraConfig
    tensors: dict[str, Tensor]
    fingerprint: str
    base_fingerprint: str


def attach_adapter(model: PreTrainedModel, settings: LoraConfig, *, name: str = DEFAULT, seed: int = 0) -> None:
    """Give the model a new adapter called `name` and make it the active one; only its tensors are trainable.

    Raises ConfigError when the targets match nothing, or a weight that is tied to another; the caller then has to
    `detach_adapter` what is there of it, or to throw the model away.
    """
    tied = _tied_modules(model)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            peft.inject_adapter_in_model(peft_settings(settings), model, adapter_name=name)
        except (ValueError, NotImplementedError) as error:
            raise ConfigError(f"peft_config does not fit {type(model).__name__}: {error}") from error
    adapted = [path for path, module in model.named_modules() if isinstance(module, LoraLayer)]
    if wrong := [path for path in adapted if path in tied]:
        raise ConfigError(
            f"peft_config.target_modules: {wrong[0]} shares its weight with another module, so an adapter of one of "
            "them could not be exported; leave it out"
        )
    for path, parameter in model.named_parameters():
        if ADAPTER_TENSOR.search(path):
            parameter.data = parameter.data.float() if parameter.dtype != torch.float64 else parameter.data
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.eval()


def detach_adapter(model: PreTrainedModel, name: str = DEFAULT) -> None:
    """Take the adapter, or what is there of it, out again; without a last one, the model is as it was before any."""
    for path, module in list(model.named_modules()):
        if isinstance(module, LoraLayer) and name in module.r:
            module.delete_adapter(name)
            if not module.r:
                parent, _, child = path.rpartition(".")
                setattr(model.get_submodule(parent), child, module.base_layer)
    settings: dict[str, Any] = getattr(model, "peft_config", {})
    settings.pop(name, None)
    if not settings and hasattr(model, "peft_config"):
        del model.peft_config


@contextmanager
def dropout_active(model: nn.Module) -> Iterator[None]:
    """Have the adapters' dropout act within the block; outside it never does."""
    dropouts = [module.lora_dropout for module in model.modules() if isinstance(module, LoraLayer)]
    for dropout in dropouts:
        dropout.train()
    try:
        yield
    finally:
        for dropout in dropouts:
            dropout.eval()


def adapter_tensors(model: nn.Module, name: str = DEFAULT) -> dict[str, Tensor]:
    """The adapter's tensors under their names in a PEFT file, detached."""
    inner = f".{name}."
    return {
        PREFIX + path.replace(inner, "."): tensor.detach()
        for path, tensor in model.named_parameters()
        if ADAPTER_TENSOR.search(path) and inner in path
    }


@torch.no_grad()
def assign_adapter(model: nn.Module, tensors: Mapping[str, Tensor], name: str = DEFAULT) -> None:
    """Copy an adapter's tensors into the model. Raises EngineError, the model untouched, when they do not fit."""
    own = adapter_tensors(model, name)
    if own.keys() != tensors.keys():
        odd = sorted(own.keys() ^ tensors.keys())
        raise EngineError(f"the adapter does not match this one's targets; differing: {', '.join(odd[:3])}")
    for key, tensor in own.items():
        if tensor.shape != tensors[key].shape:
            raise EngineError(f"adapter weight {key} has shape {tuple(tensors[key].shape)}, here {tuple(tensor.shape)}")
    for key, tensor in own.items():
        tensor.copy_(tensors[key])


@torch.no_grad()
def merged_weights(model: PreTrainedModel, name: str = DEFAULT) -> dict[str, Tensor]:
    """The model's weights with the adapter added in, under the base model's names (see `unique_weights`)."""
    weights = unique_weights(model)
    for path, module in model.named_modules():
        if isinstance(module, LoraLayer) and name in module.r:
            parameter: str = getattr(module, "parameter_name", "weight")
            key = base_name(f"{path}.{parameter}")
            delta: Tensor = getattr(module, "get_delta_weight")(name)  # noqa: B009
            base = weights[key]
            wide = torch.float64 if base.dtype == torch.float64 else torch.float32
            weights[key] = (base.to(wide) + delta.to(wide)).to(base.dtype)
    return weights


def write_adapter(path: Path, model: nn.Module, settings: LoraConfig, base_fingerprint: str) -> str:
    """Write the adapter for a sampler; the fingerprint of its tensors."""
    tensors = {key: tensor.cpu().contiguous() for key, tensor in adapter_tensors(model).items()}
    mark = fingerprint(tensors)
    metadata = {
        "format": "pt",
        "fingerprint": mark,
        "base_fingerprint": base_fingerprint,
        "peft_config": settings.model_dump_json(),
    }
    with replace_file(path) as temporary:
        save_file(tensors, temporary, metadata=metadata)
    return mark


def read_adapter(path: Path) -> AdapterFile:
    """An adapter file, or the adapter of a checkpoint's folder.

    Raises EngineError when it is missing or broken, UserError when the checkpoint holds a whole model.
    """
    if path.is_dir():
        held = read(path, dtype=torch.float32, resume=False).adapter
        if held is None:
            raise UserError(f"checkpoint {path} holds a whole model, not an adapter")
        return AdapterFile(held.settings, dict(held.tensors), fingerprint(held.tensors), held.base_fingerprint)
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        settings = LoraConfig.model_validate_json(metadata["peft_config"])
        base = metadata["base_fingerprint"]
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise EngineError(f"adapter file {path} cannot be read: {error}") from error
    return AdapterFile(settings, tensors, fingerprint(tensors), base)


def write_peft_folder(folder: Path, model: PreTrainedModel, settings: LoraConfig, base_model: str) -> None:
    """Write the adapter into `folder` as PEFT's own loader reads it."""
    tensors = {key: tensor.cpu().contiguous() for key, tensor in adapter_tensors(model).items()}
    save_file(tensors, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    described = peft_settings(settings).to_dict() | {"base_model_name_or_path": base_model, "inference_mode": True}
    text = json.dumps(described, indent=2, sort_keys=True, default=sorted)
    (folder / ADAPTER_CONFIG).write_text(text)


def peft_settings(settings: LoraConfig) -> peft.LoraConfig:
    """The settings as peft takes them."""
    targets = settings.target_modules
    return peft.LoraConfig(
        task_type=peft.TaskType.CAUSAL_LM,
        r=settings.r,
        lora_alpha=settings.lora_alpha,
        lora_dropout=settings.lora_dropout,
        bias="none",
        target_modules=targets if isinstance(targets, str) else list(targets),
        target_parameters=list(settings.target_parameters) or None,
    )


def _tied_modules(model: nn.Module) -> set[str]:
    """Paths of the modules whose weight another module holds as well."""
    holders: dict[int, set[str]] = {}
    for path, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if isinstance(weight, nn.Parameter):
            holders.setdefault(id(weight), set()).add(base_name(path))
    return {path for paths in holders.values() if len(paths) > 1 for path in paths}
