"""The wire of the training API: DSSST1 frames and chunks, REST models, statuses and their legal moves."""

from drydock.wire.chunks import (
    MAX_BODY_BYTES,
    Chunk,
    ChunkDescriptor,
    parse_chunk,
    reassemble,
    split_request,
    split_result,
)
from drydock.wire.frame import Frame, decode_frame, encode_frame
from drydock.wire.rest import (
    Capacity,
    GenerateBody,
    Job,
    JobCreate,
    OperationBody,
    RequestState,
    SamplingParams,
    SaveBody,
    StepBody,
    SubJob,
    SubJobConfig,
    WeightSyncPayload,
)
from drydock.wire.results import join_result, read_result, read_result_event, result_envelope, result_event
from drydock.wire.status import JobStatus, RequestStatus, SubJobStatus, advance

__all__ = [
    "MAX_BODY_BYTES",
    "Capacity",
    "Chunk",
    "ChunkDescriptor",
    "Frame",
    "GenerateBody",
    "Job",
    "JobCreate",
    "JobStatus",
    "OperationBody",
    "RequestState",
    "RequestStatus",
    "SamplingParams",
    "SaveBody",
    "StepBody",
    "SubJob",
    "SubJobConfig",
    "SubJobStatus",
    "WeightSyncPayload",
    "advance",
    "decode_frame",
    "encode_frame",
    "join_result",
    "parse_chunk",
    "read_result",
    "read_result_event",
    "reassemble",
    "result_envelope",
    "result_event",
    "split_request",
    "split_result",
]
