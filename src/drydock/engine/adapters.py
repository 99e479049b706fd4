"""The LoRA adapters that a sampler holds beside its base model, and which of them each row of a pass goes through.

The policy's own adapter comes with a weight sync (`sampler_weights`) and is what a request without a name gets. Any
number of named ones stand beside it, from adapter files or PEFT folders; rows of different adapters run in one pass,
each row's product computed by its own adapter and the base's only once. `base` names the model without any.

An adapter only means something on the weights that it was trained on: one that says which (files and checkpoints of
ours do) is refused on others.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakSet

from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from drydock.engine.lora_settings import ADAPTER_CONFIG, ADAPTER_WEIGHTS, BASE, LoraConfig
from drydock.engine.manifest import MARKER
from drydock.engine.weights import fingerprint
from drydock.errors import EngineError, UserError

_PLAIN = "__base__"
_CONFIG_KEYS = frozenset(LoraConfig.model_fields)


@dataclass(frozen=True, slots=True)
class AdapterSource:
    """An adapter read into memory. base_fingerprint: of the weights it was trained on, None where nothing says so."""

    settings: LoraConfig
    tensors: Mapping[str, Tensor]
    fingerprint: str
    base_fingerprint: str | None


@dataclass(frozen=True, slots=True)
class HeldAdapter:
    """A named adapter in the model. inner: its name there. space: of its keys and values in the prefix cache."""

    fingerprint: str
    inner: str
    space: int


class Adapters:
    """The named adapters of one model, and the routing of rows. Policy and base have spaces of their own as well."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._held: dict[str, HeldAdapter] = {}
        self._policy: str | None = None
        self._count = 0
        self._base_space = self._policy_space = self._new_space()
        self._routed: list[str] | None = None
        self._rows: list[str] | None = None
        self._hooked: WeakSet[nn.Module] = WeakSet()

    @property
    def names(self) -> dict[str, str]:
        """Named adapters and their fingerprints."""
        return {name: held.fingerprint for name, held in self._held.items()}

    def space(self, name: str | None) -> int:
        """The prefix-cache space of a request's adapter. Raises UserError for a name that is not held."""
        if name is None:
            return self._policy_space
        if name != BASE and name not in self._held:
            known = ", ".join([*sorted(self._held), BASE])
            raise UserError(f"adapter {name!r} is not loaded in this sampler; known: {known}")
        if self._adapts_parameters():
            raise UserError(
                f"adapter {name!r}: the policy's adapter has target_parameters, beside which no other can be served"
            )
        return self._base_space if name == BASE else self._held[name].space

    def route(self, names: Sequence[str | None]) -> None:
        """Rows of the following passes go through these adapters, in order."""
        self._routed = None
        if self._held or (self._policy is not None and any(name is not None for name in names)):
            inner = {None: self._policy or _PLAIN, BASE: _PLAIN}
            inner |= {name: held.inner for name, held in self._held.items()}
            self._routed = [inner[name] for name in names]
        self._rows = self._routed

    def narrow(self, row: int) -> None:
        """The following pass is one row's, by its place among those that were routed last."""
        self._rows = None if self._routed is None else [self._routed[row]]

    def policy_changed(self, adapter: LoraConfig | None) -> None:
        """Take note that the policy has an adapter now (whose name in the model is the usual one), or none."""
        from drydock.engine.lora import DEFAULT

        self._policy = None if adapter is None else DEFAULT
        self._policy_space = self._base_space if adapter is None else self._new_space()
        self._hook()
        self._activate()

    def refuse_beside(self, path: Path) -> None:
        """Raises EngineError for a policy's adapter that cannot be served beside the named ones."""
        if self._held and read_adapter_source(path).settings.target_parameters:
            raise EngineError(
                f"the adapter in {path} has target_parameters and cannot be served beside others; drop adapters "
                f"{', '.join(self._held)} first"
            )

    def load(self, name: str, source: AdapterSource) -> None:
        """Hold an adapter under `name`, in place of one of that name. Raises UserError or EngineError if it cannot."""
        from drydock.engine.lora import assign_adapter, attach_adapter, detach_adapter

        if name == BASE:
            raise UserError(f"adapter name {BASE!r} is taken: it stands for the model without any; choose another")
        if source.settings.target_parameters or self._adapts_parameters():
            raise UserError(
                f"adapter {name!r}: adapters with target_parameters can be served as the policy only, one at a time; "
                "use one with target_modules, or sync it"
            )
        space = self._new_space()
        inner = f"adapter{space}"
        try:
            attach_adapter(self._model, source.settings, name=inner)
            assign_adapter(self._model, source.tensors, inner)
        except (UserError, EngineError):
            detach_adapter(self._model, inner)
            self._activate()
            raise
        self._hook()
        self.drop(name)
        self._held[name] = HeldAdapter(source.fingerprint, inner, space)
        self._activate()

    def drop(self, name: str) -> bool:
        """Forget a named adapter; False when it is not held."""
        from drydock.engine.lora import detach_adapter

        held = self._held.pop(name, None)
        if held is not None:
            detach_adapter(self._model, held.inner)
        return held is not None

    def clear(self) -> list[str]:
        """Forget all named ones (for a new base); their names."""
        names = list(self._held)
        for name in names:
            self.drop(name)
        self._base_space = self._new_space()
        return names

    def _new_space(self) -> int:
        self._count += 1
        return self._count

    def _activate(self) -> None:
        """Where rows are not routed one by one, the policy's adapter is what every layer uses."""
        for module in self._layers():
            module._active_adapter = [] if self._policy is None else [self._policy]

    def _layers(self) -> list[Any]:
        from peft.tuners.lora import LoraLayer

        return [module for module in self._model.modules() if isinstance(module, LoraLayer)]

    def _adapts_parameters(self) -> bool:
        if self._policy is None and not self._held:
            return False
        return any(hasattr(module, "parameter_name") and module.r for module in self._layers())

    def _hook(self) -> None:
        for module in self._layers():
            if module not in self._hooked and not hasattr(module, "parameter_name"):
                self._hooked.add(module)
                module.register_forward_pre_hook(self._name_rows, with_kwargs=True)

    def _name_rows(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._rows is None:
            return None
        rows = args[0].shape[0]
        repeated = rows // len(self._rows)  # layers of a mixture of experts see [rows * tokens, hidden]
        return args, kwargs | {"adapter_names": [name for name in self._rows for _ in range(repeated)]}


def read_adapter_source(path: Path) -> AdapterSource:
    """An adapter in a file of a weight sync, a checkpoint folder, or any PEFT folder.

    Raises EngineError when it cannot be read, UserError when it is no LoRA adapter that can be served.
    """
    if not path.is_dir() or (path / MARKER).is_file():
        from drydock.engine.lora import read_adapter

        file = read_adapter(path)
        return AdapterSource(file.settings, file.tensors, file.fingerprint, file.base_fingerprint)
    try:
        described = json.loads((path / ADAPTER_CONFIG).read_text())
        tensors = load_file(path / ADAPTER_WEIGHTS)
    except (OSError, ValueError, SafetensorError) as error:
        raise EngineError(f"{path} holds no adapter that can be read: {error}") from error
    return AdapterSource(_settings(path, described), tensors, fingerprint(tensors), None)


def _settings(path: Path, described: dict[str, Any]) -> LoraConfig:
    if described.get("peft_type") != "LORA":
        raise UserError(f"{path} holds an adapter of type {described.get('peft_type')!r}; only LORA is served")
    for key in ("use_dora", "use_rslora", "modules_to_save", "rank_pattern", "alpha_pattern", "layers_to_transform"):
        if described.get(key):
            raise UserError(f"{path}: adapter_config.json has {key}, which is not supported")
    fields = {key: value for key, value in described.items() if key in _CONFIG_KEYS and value is not None}
    try:
        return LoraConfig.model_validate(fields | {"peft_type": "Lora", "lora_dropout": 0.0})
    except ValidationError as error:
        raise UserError(f"{path}: adapter_config.json is not supported: {error}") from error
