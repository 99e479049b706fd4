"""Putting a checkpoint's weights into a model that is only read from: whole weights, or an adapter on the model."""

from transformers import PreTrainedModel

from drydock.engine.checkpoint import Contents
from drydock.engine.weights import assign_weights, fingerprint, unique_weights
from drydock.errors import EngineError


def take_weights(model: PreTrainedModel, contents: Contents, source: str) -> None:
    """Raises EngineError when they do not fit, or an adapter was trained on other weights than the model's."""
    adapter = contents.adapter
    if adapter is None:
        assert contents.weights is not None
        assign_weights(model, contents.weights)
        return
    mark = fingerprint(unique_weights(model))
    if adapter.base_fingerprint != mark:
        raise EngineError(
            f"the adapter of {source} was trained on other weights ({adapter.base_model}, fingerprint "
            f"{adapter.base_fingerprint}) than these ({mark}); give the same model, with the same dtype"
        )
    from drydock.engine.lora import assign_adapter, attach_adapter

    attach_adapter(model, adapter.settings)
    assign_adapter(model, adapter.tensors)
