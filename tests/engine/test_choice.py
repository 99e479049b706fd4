import math

import numpy as np
import pytest
import torch

from drydock.engine.choice import ChoiceRules, choose_tokens
from drydock.wire.rest import SamplingParams

PROBABILITIES = torch.tensor([0.1, 0.4, 0.2, 0.3])


def sample(params: SamplingParams, draws: int = 20_000) -> tuple[np.ndarray, torch.Tensor]:
    uniform = torch.from_numpy(np.random.default_rng(0).random(draws, dtype=np.float32))
    rules = ChoiceRules.of([params] * draws)
    chosen = choose_tokens(PROBABILITIES.log().expand(draws, -1), rules, uniform)
    ids, logprobs = chosen.ids, chosen.logprobs
    return np.bincount(ids.numpy(), minlength=4) / draws, logprobs[:50].exp() / PROBABILITIES[ids[:50]]


def test_tokens_follow_the_distribution_and_carry_its_logprobs():
    shares, ratios = sample(SamplingParams())
    assert shares == pytest.approx([0.1, 0.4, 0.2, 0.3], abs=0.01)
    assert torch.allclose(ratios, torch.ones(50))


def test_top_k_and_top_p_cut_the_tail_but_not_the_logprobs():
    shares, ratios = sample(SamplingParams(top_k=2))
    assert shares == pytest.approx([0, 4 / 7, 0, 3 / 7], abs=0.01)
    assert torch.allclose(ratios, torch.ones(50))
    assert sample(SamplingParams(top_p=0.69))[0] == pytest.approx([0, 4 / 7, 0, 3 / 7], abs=0.01)
    assert sample(SamplingParams(top_p=0.71))[0] == pytest.approx([0, 4 / 9, 2 / 9, 3 / 9], abs=0.01)
    assert sample(SamplingParams(top_p=1e-9))[0][1] == 1


def test_temperature_scales_the_logprobs_and_zero_is_greedy():
    rules = ChoiceRules.of([SamplingParams(temperature=0.5), SamplingParams(temperature=0), SamplingParams()])
    logits = PROBABILITIES.log().expand(3, -1)
    chosen = choose_tokens(logits, rules, torch.tensor([0.0, 0.99, 0.99]))
    assert chosen.ids.tolist() == [0, 1, 3]
    assert chosen.logprobs.tolist() == pytest.approx([math.log(0.01 / 0.3), math.log(0.4), math.log(0.3)])


def test_a_token_without_probability_is_never_chosen():
    logits = torch.tensor([[-math.inf, 0.0, -math.inf], [0.0, -math.inf, -math.inf]])
    for uniform in (0.0, 0.5, 1 - 2**-24, 1.0):
        chosen = choose_tokens(logits, ChoiceRules.of([SamplingParams()] * 2), torch.full((2,), uniform))
        assert chosen.ids.tolist() == [1, 0]
