"""What a forward-backward frame must hold before it is worth a worker's time.

Only the shape of the object is looked at here, so that a malformed batch is refused by name at once; what the loss
needs is the engine's to say.
"""

from typing import Any

from drydock.errors import WireError
from drydock.service.problems import Refusal
from drydock.wire.frame import Frame, decode_frame


def check(data: bytes) -> Frame:
    """Decodes the frame. Raises Refusal 400 (no frame) or 422 (naming the field)."""
    try:
        frame = decode_frame(data)
    except WireError as error:
        raise Refusal(400, str(error)) from error
    if not isinstance(frame.value, dict):
        raise Refusal(422, f"a forward-backward frame holds an object, not a {type(frame.value).__name__}")
    kwargs: Any = frame.value.get("kwargs")
    if not isinstance(kwargs, dict):
        raise Refusal(422, "kwargs: missing; it holds input_ids [batch, tokens] and attention_mask")
    ids = kwargs.get("input_ids")
    shape = getattr(ids, "shape", None)
    if shape is None or len(shape) != 2 or 0 in shape:
        found = "missing" if ids is None else f"has shape {list(shape)}" if shape is not None else type(ids).__name__
        raise Refusal(422, f"kwargs.input_ids: must be a 2-D integer tensor with at least one row ({found})")
    for name in ("context", "processing"):
        if not isinstance(frame.value.get(name) or {}, dict):
            raise Refusal(422, f"{name}: must be an object")
    for name, value in {**kwargs, **(frame.value.get("context") or {})}.items():
        rows = getattr(value, "shape", None)
        if rows and rows[0] != shape[0]:
            raise Refusal(422, f"{name}: has {rows[0]} rows, input_ids has {shape[0]}")
    return frame
