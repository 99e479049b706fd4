"""What a sampler's policy is: base weights, and at most one adapter on them that the weight sync brings.

A file with whole weights replaces the base and drops the adapter. A file with an adapter goes on top of the base; it
names the base that it was trained on. Where that is the model that the sampler began with, and whole weights have taken
its place since, the model is read again; one trained on any other base is refused. Either way the sampler compares what
it holds with the file afterwards.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from drydock.engine.adapters import read_adapter_source
from drydock.engine.lora_settings import LoraConfig
from drydock.engine.weights import assign_weights, fingerprint, holds_weights, read_weights, unique_weights, weight_kind
from drydock.errors import ConfigError, EngineError


class SamplerWeights:
    """The policy's weights in one sampler's model.

    expected: settings that an adapter must have, or None for any. adapter: settings of the one that is held, or None.
    fingerprint: of what was loaded last. base_fingerprint: of the base.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        expected: LoraConfig | None = None,
        reread: Callable[[], Mapping[str, Tensor]] | None = None,
    ) -> None:
        """`reread` gives the weights that the model has now once more, later."""
        self._model = model
        self._expected = expected
        self._reread = reread
        self.adapter: LoraConfig | None = None
        self.base_fingerprint = fingerprint(unique_weights(model))
        self.fingerprint = self._first_fingerprint = self.base_fingerprint

    def load(self, path: Path, expected_fingerprint: str) -> bool:
        """Take over a file; whether the base is another now.

        Raises EngineError, with the old weights in place, when it is not what was announced.
        """
        if weight_kind(path) == "adapter":
            return self._load_adapter(path, expected_fingerprint)
        weights = read_weights(path)
        found = fingerprint(weights)
        _check(path, found, expected_fingerprint)
        assign_weights(self._model, weights)
        if not holds_weights(self._model, weights):
            raise EngineError(f"after loading {path} the sampler's parameters differ from the file")
        self._drop_adapter()
        self.base_fingerprint = self.fingerprint = found
        return True

    def check_base(self, path: Path, base_fingerprint: str | None) -> None:
        """Raises EngineError when an adapter was trained on other weights than the base; None: it does not say."""
        if base_fingerprint is not None and base_fingerprint != self.base_fingerprint:
            raise EngineError(
                f"the adapter in {path} was trained on other weights (fingerprint {base_fingerprint}) than the base "
                f"that is loaded here ({self.base_fingerprint}): load the model that it was trained on, with the same "
                "dtype, or sync whole weights (weight_format vllm)"
            )

    def _load_adapter(self, path: Path, expected_fingerprint: str) -> bool:
        from drydock.engine.lora import adapter_tensors, assign_adapter

        file = read_adapter_source(path)
        _check(path, file.fingerprint, expected_fingerprint)
        first = self._first_base(file.base_fingerprint)
        if first is None:
            self.check_base(path, file.base_fingerprint)
        if self._expected is not None and not self._expected.same_adapter(file.settings):
            raise EngineError(
                f"the adapter in {path} has settings {file.settings.model_dump()}, inference_config.peft_config says "
                f"{self._expected.model_dump()}"
            )
        if self.adapter is not None and self.adapter.same_adapter(file.settings):
            assign_adapter(self._model, file.tensors)
        else:
            self._exchange_adapter(file.settings, file.tensors)
        if first is not None:
            assign_weights(self._model, first)
            self.base_fingerprint = self._first_fingerprint
        held = adapter_tensors(self._model)
        if not all(torch.equal(tensor.cpu(), file.tensors[name]) for name, tensor in held.items()):
            raise EngineError(f"after loading {path} the sampler's adapter differs from the file")
        self.fingerprint = file.fingerprint
        return first is not None

    def _first_base(self, wanted: str | None) -> Mapping[str, Tensor] | None:
        """The weights that the sampler began with, where they are wanted and others have taken their place."""
        if wanted != self._first_fingerprint or wanted == self.base_fingerprint or self._reread is None:
            return None
        weights = self._reread()
        if (found := fingerprint(weights)) != wanted:
            raise EngineError(
                f"the adapter was trained on weights {wanted}, but the model's files hold {found} by now; put them "
                "back, or sync whole weights (weight_format vllm)"
            )
        return weights

    def _exchange_adapter(self, settings: LoraConfig, tensors: Mapping[str, Tensor]) -> None:
        """Hold an adapter with other settings than before; the one before comes back where that cannot be."""
        from drydock.engine.lora import adapter_tensors, assign_adapter, attach_adapter, detach_adapter

        before, held = self.adapter, {name: tensor.clone() for name, tensor in adapter_tensors(self._model).items()}
        self._drop_adapter()
        try:
            attach_adapter(self._model, settings)
            assign_adapter(self._model, tensors)
        except (ConfigError, EngineError) as error:
            detach_adapter(self._model)
            if before is not None:
                self._exchange_adapter(before, held)
            raise EngineError(f"the adapter does not fit the sampler's model: {error}") from error
        self.adapter = settings

    def _drop_adapter(self) -> None:
        if self.adapter is not None:
            from drydock.engine.lora import detach_adapter

            detach_adapter(self._model)
            self.adapter = None


def _check(path: Path, found: str, expected: str) -> None:
    if found != expected:
        raise EngineError(f"weights in {path} have fingerprint {found}, expected {expected}; nothing was loaded")
