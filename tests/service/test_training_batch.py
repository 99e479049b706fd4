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
