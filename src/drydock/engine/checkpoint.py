"""Checkpoints on disk.

    weights-only   a Hugging Face folder: config, model.safetensors, tokenizer, generation config
    resumable      the same plus optimizer.safetensors: optimizer state, float32 masters, random state

of a LoRA policy, a PEFT folder (adapter_config.json, adapter_model.safetensors) and the tokenizer take the place of
the Hugging Face folder, unless a weights-only checkpoint is asked to be merged.

All carry `trainer_state.json` and, written last, `COMPLETE.json` with every file's size and SHA-256: a folder without
it, or whose files are others, is not loaded. The whole folder is written under a temporary name and renamed. A Hugging
Face folder from elsewhere can be loaded as a weights-only checkpoint. Only safetensors and JSON are read; a folder with
pickles or code is refused.

Random state is that of torch on the CPU and every GPU; the engine draws from nothing else.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from drydock.atomic import create_folder
from drydock.engine.lora_settings import ADAPTER_CONFIG, ADAPTER_WEIGHTS, LoraConfig
from drydock.engine.manifest import MARKER, check_complete, check_content, write_manifest
from drydock.engine.model import load_model
from drydock.engine.optimizer_state import OptimizerState
from drydock.engine.weights import unique_weights
from drydock.errors import EngineError, UserError

TYPES = ("resumable", "weights-only")
STATE = "trainer_state.json"
OPTIMIZER = "optimizer.safetensors"
REFUSED_SUFFIXES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".py", ".so")


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA policy's part of a checkpoint. tensors: see `drydock.engine.lora`."""

    settings: LoraConfig
    base_fingerprint: str
    base_model: str
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Resumption:
    """What only a resumable checkpoint holds.

    optimizer_name: kind of the optimizer. masters: float32 copies of narrower parameters, by name.
    fixed_rate: the learning rate that a step named last, or None while the schedule rules.
    """

    optimizer_name: str
    optimizer: OptimizerState
    masters: Mapping[str, Tensor]
    fixed_rate: float | None
    random_state: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Contents:
    """A checkpoint read into memory. weights: of the whole model, None where `adapter` is set."""

    checkpoint_type: str
    global_steps: int
    weights: Mapping[str, Tensor] | None
    adapter: Adapter | None
    resumption: Resumption | None


def save(
    directory: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    global_steps: int,
    *,
    weights: Mapping[str, Tensor] | None = None,
    adapter: Adapter | None = None,
    resumption: Resumption | None = None,
) -> None:
    """Write a checkpoint: of the model, of `weights` in its place, or of its adapter; resumable with `resumption`.

    Raises UserError when the directory exists.
    """
    with create_folder(directory) as folder:
        state: dict[str, Any] = {
            "checkpoint_type": "weights-only" if resumption is None else "resumable",
            "global_steps": global_steps,
        }
        if adapter is not None:
            from drydock.engine.lora import write_peft_folder

            write_peft_folder(folder, model, adapter.settings, adapter.base_model)
            state["peft_config"] = adapter.settings.model_dump(mode="json")
            state["base_model"], state["base_fingerprint"] = adapter.base_model, adapter.base_fingerprint
        else:
            (model if weights is None else _with_weights(model, weights)).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        if resumption is not None:
            state |= _write_resumption(folder, resumption)
        (folder / STATE).write_text(json.dumps(state, indent=1))
        write_manifest(folder)


def read(directory: Path, *, dtype: torch.dtype, resume: bool = True) -> Contents:
    """Read a checkpoint, its bytes checked against its manifest, or a Hugging Face folder from elsewhere.

    dtype: that the model's weights are wanted in. resume: read what a resumable one holds beside the weights.
    Raises EngineError when the folder is missing, incomplete, damaged or unreadable; UserError when it holds a pickle
    or code.
    """
    if not (directory / MARKER).is_file() and (directory / "config.json").is_file():
        return _read_external(directory, dtype)
    check_content(directory)
    try:
        state = json.loads((directory / STATE).read_text())
        adapter = _read_adapter(directory, state) if "peft_config" in state else None
        resumption = _read_resumption(directory, state) if resume and state["checkpoint_type"] == "resumable" else None
        checkpoint_type, global_steps = str(state["checkpoint_type"]), int(state["global_steps"])
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise EngineError(f"checkpoint {directory} cannot be read: {error}") from error
    weights = None if adapter is not None else _read_weights(directory, dtype)
    return Contents(checkpoint_type, global_steps, weights, adapter, resumption)


def random_state() -> dict[str, Tensor]:
    """The state of every random generator that the engine draws from."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states |= {f"cuda:{index}": state for index, state in enumerate(torch.cuda.get_rng_state_all())}
    return states


def restore_random_state(states: Mapping[str, Tensor]) -> None:
    """Set what `random_state` gave; generators of devices that this machine lacks are left out."""
    torch.set_rng_state(states["cpu"])
    for index in range(torch.cuda.device_count()):
        if f"cuda:{index}" in states:
            torch.cuda.set_rng_state(states[f"cuda:{index}"], index)


def _with_weights(model: PreTrainedModel, weights: Mapping[str, Tensor]) -> PreTrainedModel:
    """A model of the same configuration that holds `weights`, without a copy."""
    with torch.device("meta"):
        plain = AutoModelForCausalLM.from_config(model.config, dtype=model.dtype)
    plain.load_state_dict(dict(weights), strict=False, assign=True)
    plain.tie_weights()
    plain.generation_config = model.generation_config
    return plain


def _write_resumption(folder: Path, resumption: Resumption) -> dict[str, Any]:
    tensors = {f"optimizer/{name}": tensor for name, tensor in resumption.optimizer.tensors.items()}
    tensors |= {f"master/{name}": tensor.cpu().contiguous() for name, tensor in resumption.masters.items()}
    tensors |= {f"random/{name}": tensor for name, tensor in resumption.random_state.items()}
    save_file(tensors, folder / OPTIMIZER)
    return {
        "optimizer": resumption.optimizer_name,
        "optimizer_values": resumption.optimizer.values,
        "fixed_rate": resumption.fixed_rate,
    }


def _read_resumption(directory: Path, state: Mapping[str, Any]) -> Resumption:
    parts: dict[str, dict[str, Tensor]] = {"optimizer": {}, "master": {}, "random": {}}
    for key, tensor in load_file(directory / OPTIMIZER).items():
        part, _, name = key.partition("/")
        parts[part][name] = tensor
    return Resumption(
        optimizer_name=state["optimizer"],
        optimizer=OptimizerState(parts["optimizer"], state["optimizer_values"]),
        masters=parts["master"],
        fixed_rate=state["fixed_rate"],
        random_state=parts["random"],
    )


def _read_adapter(directory: Path, state: Mapping[str, Any]) -> Adapter:
    tensors = load_file(directory / ADAPTER_WEIGHTS)
    settings = LoraConfig.model_validate(state["peft_config"])
    return Adapter(settings, state["base_fingerprint"], state["base_model"], tensors)


def _read_weights(directory: Path, dtype: torch.dtype) -> dict[str, Tensor]:
    try:
        return unique_weights(load_model(str(directory), dtype=str(dtype)))
    except UserError as error:
        raise EngineError(f"checkpoint {directory} cannot be read: {error}") from error


def _read_external(directory: Path, dtype: torch.dtype) -> Contents:
    if (directory / STATE).exists():
        check_complete(directory)
    for path in sorted(directory.rglob("*")):
        if path.suffix in REFUSED_SUFFIXES:
            raise UserError(
                f"{directory} holds {path.relative_to(directory)}: a checkpoint with pickles or code is not loaded; "
                "convert it to safetensors and remove the file"
            )
    if (directory / ADAPTER_CONFIG).exists():
        raise UserError(f"{directory} holds an adapter; load the merged model, or start from its base with peft_config")
    if not any(directory.glob("*.safetensors")):
        raise EngineError(f"{directory} holds no .safetensors file; it is no checkpoint that can be loaded")
    return Contents("weights-only", 0, _read_weights(directory, dtype), None, None)
