"""REST models and statuses: what clients may send, what is refused by name, which moves are legal."""

import itertools

import numpy as np
import pytest
from pydantic import ValidationError

from drydock.errors import IllegalTransition
from drydock.wire import (
    GenerateBody,
    Job,
    JobCreate,
    JobStatus,
    RequestState,
    RequestStatus,
    SamplingParams,
    SaveBody,
    SubJobConfig,
    SubJobStatus,
    advance,
)
from drydock.wire.rest import sub_job_id

TRAINING = {"job_type": "training", "model_name": "m", "training_config": {"max_seq_len": 8}}
SAMPLING = {"job_type": "sampling", "model_name": "m", "inference_config": {"max_seq_len": 8}}


def test_unknown_keys_of_a_job_are_kept_at_every_level():
    body = {
        "sub_job_configs": [TRAINING | {"own": 1, "training_config": {"optimizer": {"lr": 1.0}, "x": None}}],
        "comment": "free text",
        "tags": ["a"],
    }
    assert JobCreate.model_validate(body).model_dump(exclude_unset=True) == body


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"sub_job_configs": []}, "sub_job_configs"),
        ({"sub_job_configs": [TRAINING, TRAINING]}, "more than one training"),
        ({"sub_job_configs": [SAMPLING | {"training_config": {}}]}, "needs inference_config and no training_config"),
        ({"sub_job_configs": [{"job_type": "training", "model_name": "m"}]}, "needs training_config"),
        ({"sub_job_configs": [SAMPLING | {"model_name": ""}]}, "model_name"),
        ({"sub_job_configs": [SAMPLING | {"job_type": "baking"}]}, "job_type"),
        ({"sub_job_configs": [SAMPLING], "job_id": "a:b"}, "job_id"),
        ({"sub_job_configs": [SAMPLING], "job_id": "../etc"}, "job_id"),
        ({"sub_job_configs": [SAMPLING], "job_id": "capacity"}, "reserved"),
    ],
)
def test_a_job_that_cannot_be_made_is_refused_by_name(body, named):
    with pytest.raises(ValidationError, match=named):
        JobCreate.model_validate(body)


def test_job_types_are_read_in_any_case_and_give_sub_job_ids():
    assert SubJobConfig.model_validate(SAMPLING | {"job_type": "SAMPLING"}).job_type == "sampling"
    assert sub_job_id("j", "log_probability", 0) == "j:log_prob:0"


@pytest.mark.parametrize(
    "prompts",
    [[5, 6], np.array([5, 6], np.int32), [[5, 6]], [np.array([5, 6])], np.array([[5, 6]])],
    ids=["flat list", "1-D array", "list of lists", "list of arrays", "2-D array"],
)
def test_token_prompts_are_read_in_every_form(prompts):
    assert GenerateBody.model_validate({"prompts": prompts}).prompts == [[5, 6]]


def test_strings_and_tokens_mix_and_settings_may_differ_per_prompt():
    body = GenerateBody.model_validate(
        {"prompts": ["hi", [1]], "sampling_params": [{"max_tokens": 3}, None], "routing_key": [None, "k"]}
    )
    assert body.prompts == ["hi", [1]]
    assert [body.params_of(index).max_tokens for index in (0, 1)] == [3, 16]
    assert [body.routing_key_of(index) for index in (0, 1)] == [None, "k"]
    with pytest.raises(ValidationError, match="2 entries for 1 prompts"):
        GenerateBody.model_validate({"prompts": ["hi"], "routing_key": ["a", "b"]})


def test_sampling_parameters_that_no_engine_reads_are_refused_by_name():
    with pytest.raises(ValidationError, match="length_penalty"):
        SamplingParams.model_validate({"length_penalty": 1.2})
    for wrong in ({"temperature": -1}, {"top_p": 0}, {"max_tokens": 0}, {"top_k": -2}, {"logprobs": -1}):
        with pytest.raises(ValidationError, match=next(iter(wrong))):
            SamplingParams.model_validate(wrong)
    assert SamplingParams.model_validate({"stop": "x", "top_k": None}) == SamplingParams(stop=["x"])


def test_statuses_of_other_servers_are_understood():
    assert Job.model_validate({"job_id": "j", "status": "JOB_STATE_RUNNING"}).status is JobStatus.RUNNING
    assert Job.model_validate({"job_id": "j", "status": "canceled"}).status is JobStatus.CANCELLED
    assert Job.model_validate({"job_id": "j", "status": 7}).status is JobStatus.PENDING
    state = RequestState.model_validate({"request_id": "r", "job_id": "j", "status": "REQUEST_STATE_SUCCEEDED"})
    assert state.status is RequestStatus.COMPLETED
    assert RequestStatus.parse("streaming") is RequestStatus.RUNNING
    assert (
        SaveBody.model_validate({"checkpoint_type": "WEIGHTS-ONLY", "export_hf": False}).checkpoint_type
        == "weights-only"
    )


def test_lives_go_through_the_table_only():
    life = [JobStatus.PENDING, JobStatus.PLACING, JobStatus.INITIALIZING, JobStatus.RUNNING, JobStatus.CANCELLED]
    for current, new in itertools.pairwise(life):
        assert advance(current, new) is new
    for current, new in (
        (JobStatus.PENDING, JobStatus.RUNNING),
        (JobStatus.RUNNING, JobStatus.PENDING),
        (JobStatus.CANCELLED, JobStatus.RUNNING),
        (JobStatus.RUNNING, JobStatus.RUNNING),
        (SubJobStatus.FAILED, SubJobStatus.RUNNING),
        (RequestStatus.PENDING, RequestStatus.COMPLETED),
        (RequestStatus.COMPLETED, RequestStatus.FAILED),
    ):
        with pytest.raises(IllegalTransition, match=f"from {current} to {new}"):
            advance(current, new)


@pytest.mark.parametrize("kind", [JobStatus, SubJobStatus, RequestStatus])
def test_exactly_the_ends_are_terminal(kind):
    ends = {status.value for status in kind if status.terminal}
    assert ends == ({"completed"} if kind is RequestStatus else {"terminated"}) | {"failed", "cancelled"}
