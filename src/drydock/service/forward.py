"""The forward operation: log-probs of given rows, without gradients, under the trainer's present weights or those of a
log-probability sub-job, which never change.

Its payload is the model inputs of a forward-backward, as JSON lists ({"kwargs": {"input_ids": [[...]], ...}}) or as a
DSSST1 frame in base64 ({"payload_b64", "content_type"}); `processing.post` may ask for the entropy as well. It waits
its turn among the sub-job's operations, adds no gradients and drops none.
"""

import base64
import binascii
from typing import Any

import numpy as np

from drydock.service import body
from drydock.service.live_job import LiveJob
from drydock.service.meters import Meter, Metered
from drydock.service.problems import Refusal
from drydock.service.request_record import Outcome, RequestRecord
from drydock.service.row_limits import RowLimits
from drydock.service.training_batch import check_inputs, check_posts, decode
from drydock.wire.frame import encode_frame

INPUTS = ("input_ids", "attention_mask", "position_ids", "temperature")


def frame_of(payload: dict[str, Any], limits: RowLimits) -> tuple[bytes, bool]:
    """The frame for the trainer, checked, and whether its caller wants tensors back. Raises Refusal 400 or 422."""
    wants_tensors = False
    value: dict[str, Any] = payload
    if payload.get("payload_b64") is not None:
        frame = decode(_octets(payload["payload_b64"]))
        value, wants_tensors = frame.value, body.wants_tensors(frame.metadata)
    kwargs = value.get("kwargs")
    if not isinstance(kwargs, dict):
        raise Refusal(422, "payload.kwargs: missing; it holds input_ids [batch, tokens] and attention_mask")
    inputs = {name: _array(name, kwargs[name]) for name in INPUTS if kwargs.get(name) is not None}
    check_inputs({"kwargs": inputs}, limits)
    processing = value.get("processing")
    asked = processing.get("post") if isinstance(processing, dict) else None
    posts = check_posts(asked, "payload.processing.post")
    return encode_frame({"kwargs": inputs, "processing": {"post": posts}}), wants_tensors


async def forward(job: LiveJob, sub_job_id: str, frame: tuple[bytes, bool], record: RequestRecord) -> Outcome:
    """{"job_id", "metrics", "post_process_outputs": {"logprobs": [batch, tokens]}}, predict-next."""
    data, record.wants_tensors = frame
    record.arguments = {"sub_job_id": sub_job_id}
    worker = job.workers[sub_job_id]
    reply = await record.ask(worker, "forward", data)
    metered = (Metered(Meter.PROMPT_TOKENS, reply.header["tokens"], worker.spec.sub_job_id),)
    return Outcome(frame=reply.payload, metered=metered)


def _octets(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise Refusal(422, f"payload.payload_b64: is not base64 ({error})") from error


def _array(name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise Refusal(422, f"payload.kwargs.{name}: rows of different lengths; pad them to one width") from error
    if array.dtype.kind == "b":
        array = array.astype(np.int64)
    if array.dtype.kind not in "iuf":
        raise Refusal(422, f"payload.kwargs.{name}: must be a tensor of numbers")
    return array
