"""Batches that no engine needs to see."""

from typing import Any

import numpy as np
import pytest

from drydock.service.problems import Refusal
from drydock.service.row_limits import RowLimits
from drydock.service.training_batch import check
from drydock.wire.frame import encode_frame

IDS = np.array([[5, 6, 7]])
LIMITS = RowLimits(vocab_size=100, max_seq_len=8)


def frame(**processing: Any) -> bytes:
    return encode_frame({"kwargs": {"input_ids": IDS}, "processing": {"loss_fn": "sft", **processing}})


@pytest.mark.parametrize("posts", [None, "identity", [], ["compute_logprobs", "identity"]])
def test_names_of_posts_pass_alone_or_listed(posts: Any):
    assert check(frame(post=posts), LIMITS).value["processing"]["post"] == posts


@pytest.mark.parametrize(
    "posts", [IDS, np.array(1.0), [IDS], [["identity"]], {"identity": 1}, 3, "entropy", ["identity", None], ""]
)
def test_whatever_else_stands_for_a_post_is_refused_by_name(posts: Any):
    with pytest.raises(Refusal, match=r"processing\.post") as caught:
        check(frame(post=posts), LIMITS)
    assert caught.value.status == 422


@pytest.mark.parametrize(("key", "value"), [("loss_fn", IDS), ("loss_fn", 3), ("config", IDS), ("config", [1])])
def test_a_loss_and_its_settings_have_one_kind(key: str, value: Any):
    with pytest.raises(Refusal, match=f"processing.{key}"):
        check(frame(**{key: value}), LIMITS)


def packed(positions: list[list[int]]) -> bytes:
    ids = np.arange(5, 5 + len(positions[0]))[None]
    return encode_frame({"kwargs": {"input_ids": ids, "position_ids": np.array(positions)}})


def test_the_length_limit_is_one_of_sequences_also_where_they_are_packed():
    check(packed([[*range(8), *range(5)]]), LIMITS)
    with pytest.raises(Refusal, match="row 0 has a sequence of 9 tokens, more than max_seq_len 8"):
        check(packed([[*range(9), *range(4)]]), LIMITS)


def test_a_pack_without_a_batch_dimension_is_told_how_to_come():
    with pytest.raises(Refusal, match="packed into one row"):
        check(encode_frame({"kwargs": {"input_ids": IDS[0]}}), LIMITS)


@pytest.mark.parametrize(
    ("name", "told"), [("verl_grpo", "aligned with the response"), ("pickle.loads", "unknown loss")]
)
def test_losses_of_other_registries_are_refused_with_the_reason(name: str, told: str):
    with pytest.raises(Refusal, match=told):
        check(frame(loss_fn=name), LIMITS)
