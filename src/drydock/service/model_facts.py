"""What a model's files say about it, without loading it: vocabulary, longest sequence, architecture, size.

Read from `config.json` and the headers of the safetensors files, in a local folder or in the hub cache of this
machine, so that a call that cannot work is refused before a worker is started. A hub model that is not cached yet has
no facts, and what depends on them is then left to the engine; it is refused only where it surely is not there: an id
that no hub knows, or a service told to stay offline (HF_HUB_OFFLINE).
"""

import json
import math
import os
import re
import struct
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from drydock.service.problems import Refusal

MAX_HEADER_BYTES = 256 << 20
HUB_ID = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,95}/)?[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
ARCHITECTURE = (
    "model_type",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "num_experts",
    "tie_word_embeddings",
)
"""Keys of `config.json` that must agree for one model's weights to fit another."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Facts of one model; None where its files do not say.

    parameters: number of them. architecture: the values of ARCHITECTURE that its configuration has.
    """

    vocab_size: int | None
    max_positions: int | None
    parameters: int | None
    architecture: tuple[tuple[str, Any], ...]

    def differences(self, other: "ModelFacts") -> str:
        """In which keys the architectures differ, as `key a != b, …`; empty when one's weights fit the other."""
        ours, theirs = dict(self.architecture), dict(other.architecture)
        return ", ".join(
            f"{key} {ours[key]!r} != {theirs[key]!r}"
            for key in ARCHITECTURE
            if key in ours and key in theirs and ours[key] != theirs[key]
        )


NOTHING_KNOWN = ModelFacts(None, None, None, ())


def facts_of(model_name: str, where: str) -> ModelFacts | None:
    """The model's facts, None for a hub model that is not on this machine yet.

    Raises Refusal 422, naming the field at `where`, for a model that is surely not there.
    """
    if "\0" in model_name:
        raise Refusal(422, f"{where}: {model_name!r} is no model name")
    try:
        path = Path(model_name).expanduser()
    except RuntimeError as error:
        raise Refusal(422, f"{where}: {model_name[:200]!r} names a home folder that does not exist") from error
    try:
        if path.is_dir():
            if not (path / "config.json").is_file():
                raise Refusal(422, f"{where}: folder {model_name!r} has no config.json; name a Hugging Face model")
            return read_facts(path)
    except OSError as error:
        raise Refusal(
            422, f"{where}: {model_name[:200]!r} is neither a folder nor a hub id that can be used: {error.strerror}"
        ) from error
    if names_folder(model_name):
        raise Refusal(422, f"{where}: there is no model folder {model_name!r} on the service's machine")
    if not HUB_ID.fullmatch(model_name):
        raise Refusal(422, f"{where}: {model_name[:200]!r} is neither a folder nor a hub id (organisation/name)")
    cached = hub_snapshot(model_name)
    if cached is not None:
        return read_facts(cached)
    if is_offline():
        raise Refusal(
            422, f"{where}: {model_name!r} is not on this machine and the service is offline (HF_HUB_OFFLINE)"
        )
    return None


def is_offline() -> bool:
    """Whether this process is told not to ask the hub (HF_HUB_OFFLINE)."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def names_folder(model_name: str) -> bool:
    """Whether a model's name can be a folder's only, because no hub id is written so."""
    return model_name.startswith(("/", ".", "~")) or model_name.count("/") > 1


@lru_cache(maxsize=1024)
def facts_of_sub_job(sub_job_id: str, model_name: str) -> ModelFacts | None:
    """Facts of a running sub-job's model, as they were when first asked for; None where they are not known."""
    try:
        return facts_of(model_name, sub_job_id)
    except Refusal:
        return None


def read_facts(folder: Path) -> ModelFacts:
    """Facts of the model in `folder`; whatever cannot be read is None."""
    try:
        version = (folder / "config.json").stat().st_mtime_ns
    except OSError:
        return NOTHING_KNOWN
    return _read(folder, version)


@lru_cache(maxsize=256)
def _read(folder: Path, _version: int) -> ModelFacts:
    try:
        config = json.loads((folder / "config.json").read_text())
        text = config.get("text_config") or config
        text.items()
    except (OSError, ValueError, AttributeError):
        return NOTHING_KNOWN
    return ModelFacts(
        _positive(text.get("vocab_size")),
        _positive(text.get("max_position_embeddings")),
        _count_parameters(folder),
        tuple((key, text[key]) for key in ARCHITECTURE if isinstance(text.get(key), str | int | bool)),
    )


def _positive(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _count_parameters(folder: Path) -> int | None:
    """From the headers of all `model*.safetensors`; None without any that can be read."""
    total = 0
    for path in folder.glob("model*.safetensors"):
        try:
            with path.open("rb") as file:
                (length,) = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(length)) if length <= MAX_HEADER_BYTES else {}
            total += sum(math.prod(entry["shape"]) for key, entry in header.items() if key != "__metadata__")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error):
            return None
    return total or None


def hub_snapshot(model_name: str) -> Path | None:
    """The newest snapshot of a hub model in this machine's cache, None without one."""
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    snapshots = (hub / f"models--{model_name.replace('/', '--')}").glob("snapshots/*/config.json")
    newest = max(snapshots, key=lambda path: path.stat().st_mtime_ns, default=None)
    return newest.parent if newest else None
