"""What `drydock serve` is told to serve: a whole model, or an adapter on its base, and further adapters of that base.

All of it is looked at before anything is started, so that what is missing is named in the words of the command.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from drydock.errors import UserError
from drydock.service.hub_model import require_model


@dataclass(frozen=True, slots=True)
class ServedModel:
    """source: absolute folder or hub id of the whole model. policy: folder of the adapter that is served on it.

    further: absolute folders of other adapters by name.
    """

    source: str
    policy: str | None = None
    further: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """What messages call it."""
        return self.source if self.policy is None else f"the adapter in {self.policy} on the base {self.source}"

    @property
    def remedy(self) -> str:
        """What helps where an adapter and its base do not go together."""
        adapted = self.policy is not None or self.further
        return "; name the model that the adapter was trained on with --base" if adapted else ""


def find_served_model(model: str, base: str | None, adapters: Sequence[str]) -> ServedModel:
    """Raises UserError naming what is neither a folder nor on the hub, no model, or no adapter."""
    further = dict(map(_named_adapter, adapters))
    folder = Path(model).expanduser()
    if not (folder / "adapter_config.json").is_file():
        if base is not None:
            raise UserError(f"--base: {model} holds no adapter (adapter_config.json)")
        return ServedModel(_whole_model(model), further=further)
    wanted, told = (base, "--base") if base is not None else (_named_base(folder), "its adapter_config.json")
    try:
        source = _whole_model(wanted)
    except UserError as error:
        raise UserError(
            f"the adapter in {folder.resolve()} wants the base {wanted!r} ({told}), which cannot be used: {error}; "
            "name the model that the adapter was trained on with --base"
        ) from error
    return ServedModel(source, str(folder.resolve()), further)


def _whole_model(name: str) -> str:
    require_model(name)
    folder = Path(name).expanduser()
    if not folder.is_dir():
        return name
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder} has no config.json: give a Hugging Face model folder, a checkpoint or an adapter")
    return str(folder.resolve())


def _named_base(folder: Path) -> str:
    described = folder / "adapter_config.json"
    try:
        named = json.loads(described.read_text(encoding="utf-8")).get("base_model_name_or_path")
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"{described} cannot be read: {error}") from error
    if not named:
        raise UserError(f"{described} does not name its base model; give --base")
    return str(named)


def _named_adapter(given: str) -> tuple[str, str]:
    name, equals, path = given.partition("=")
    if not (name and equals and path):
        raise UserError(f"--adapter {given!r}: give NAME=FOLDER")
    folder = Path(path).expanduser().resolve()
    if not (folder / "adapter_config.json").is_file():
        raise UserError(f"--adapter {given}: {folder} holds no adapter (adapter_config.json)")
    return name, str(folder)
