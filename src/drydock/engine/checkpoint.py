"""Checkpoints on disk.

    weights-only   a Hugging Face folder: config, model.safetensors, tokenizer, generation config
    resumable      the same plus optimizer.safetensors, and trainer_state.json with step and optimizer settings

Both carry `trainer_state.json` and, written last, `COMPLETE.json` with every file's size: a folder without it, or
with a file of another size, is not loaded. The whole folder is written under a temporary name and renamed. No
pickle anywhere.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from drydock.atomic import create_folder
from drydock.engine.weights import assign_weights
from drydock.errors import EngineError, UserError

TYPES = ("resumable", "weights-only")
MARKER = "COMPLETE.json"
STATE = "trainer_state.json"
OPTIMIZER = "optimizer.safetensors"
RNG_KEY = "rng.torch"


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """checkpoint_type: one of TYPES. global_steps: optimizer steps taken when it was written."""

    checkpoint_type: str
    global_steps: int


def save(
    directory: Path,
    checkpoint_type: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    global_steps: int,
    optimizer: torch.optim.Optimizer | None,
) -> None:
    """Write a checkpoint. Raises UserError for an unknown type or a directory that exists."""
    if checkpoint_type not in TYPES:
        raise UserError(f"unknown checkpoint_type {checkpoint_type!r}; known: {', '.join(TYPES)}")
    with create_folder(directory) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        state: dict[str, Any] = {"checkpoint_type": checkpoint_type, "global_steps": global_steps}
        if checkpoint_type == "resumable":
            if optimizer is None:
                raise EngineError("a resumable checkpoint needs the optimizer")
            tensors, state["param_groups"] = _pack_optimizer(optimizer, model)
            save_file({**tensors, RNG_KEY: torch.get_rng_state()}, folder / OPTIMIZER)
        (folder / STATE).write_text(json.dumps(state, indent=1))
        sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in sorted(folder.rglob("*"))}
        (folder / MARKER).write_text(json.dumps({"files": sizes}, indent=1))


def load(directory: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer) -> CheckpointState:
    """Restore weights and, from a resumable checkpoint, optimizer and random state, all in place.

    Raises EngineError when the folder is missing, incomplete or of another architecture (the model is untouched
    unless only the optimizer part is at fault).
    """
    check_complete(directory)
    try:
        state = json.loads((directory / STATE).read_text())
        weights: dict[str, Tensor] = {}
        for path in sorted(directory.glob("model*.safetensors")):
            weights.update(load_file(path))
        packed = load_file(directory / OPTIMIZER) if state["checkpoint_type"] == "resumable" else None
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise EngineError(f"checkpoint {directory} cannot be read: {error}") from error
    assign_weights(model, weights)
    if packed is not None:
        torch.set_rng_state(packed.pop(RNG_KEY))
        _unpack_optimizer(optimizer, model, packed, state["param_groups"], directory)
    return CheckpointState(state["checkpoint_type"], int(state["global_steps"]))


def check_complete(directory: Path) -> None:
    """Raises EngineError unless `directory` is a whole checkpoint."""
    try:
        files = json.loads((directory / MARKER).read_text())["files"]
    except (OSError, ValueError, KeyError):
        raise EngineError(f"{directory} is no complete checkpoint: its {MARKER} is missing or unreadable") from None
    for name, size in files.items():
        path = directory / name
        if not path.is_file() or path.stat().st_size != size:
            raise EngineError(f"checkpoint {directory} is damaged: {name} is missing or has another size")


def _pack_optimizer(
    optimizer: torch.optim.Optimizer, model: PreTrainedModel
) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """Optimizer state by parameter name ("exp_avg/<parameter>"), and the groups' settings."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    tensors = {
        f"{key}/{names[id(parameter)]}": value.detach().cpu().contiguous()
        for parameter, entries in optimizer.state.items()
        for key, value in entries.items()
        if isinstance(value, Tensor)
    }
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    return tensors, groups


def _unpack_optimizer(
    optimizer: torch.optim.Optimizer,
    model: PreTrainedModel,
    packed: dict[str, Tensor],
    groups: list[dict[str, Any]],
    directory: Path,
) -> None:
    parameters = dict(model.named_parameters())
    for name, value in packed.items():
        key, _, parameter_name = name.partition("/")
        parameter = parameters.get(parameter_name)
        if parameter is None or (value.ndim and value.shape != parameter.shape):
            raise EngineError(f"optimizer state {name} of checkpoint {directory} does not fit the model")
        optimizer.state[parameter][key] = value.to(parameter.device)
    for group, stored in zip(optimizer.param_groups, groups, strict=True):
        group.update({key: tuple(v) if isinstance(v, list) else v for key, v in stored.items()})
