"""Everything a request can ask of the sampling engine beyond a plain completion."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from drydock.engine.sampling import TorchSamplingEngine
from drydock.engine.types import SamplePiece, SampleResult
from drydock.errors import UserError
from drydock.wire.rest import SamplingParams

PROMPT = list(range(40, 100))


@pytest.fixture(scope="module")
def engine(tiny_model: str) -> TorchSamplingEngine:
    return TorchSamplingEngine(tiny_model, {"max_running_rows": 16})


def finish(engine: TorchSamplingEngine) -> dict[tuple[str, int], SampleResult]:
    results: dict[tuple[str, int], SampleResult] = {}
    while engine.has_work:
        results |= {(result.request_id, result.index): result for result in engine.step()}
    return results


def sample(engine: TorchSamplingEngine, prompt: list[int], **params: object) -> SampleResult:
    engine.submit("only", prompt, SamplingParams.model_validate({"ignore_eos": True, **params}))
    return finish(engine)["only", 0]


def logits_of(engine: TorchSamplingEngine, ids: list[int]) -> Tensor:
    with torch.no_grad():
        return engine.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]


def test_n_samples_share_one_prefill_and_differ(engine: TorchSamplingEngine):
    engine.reset_prefix_cache()
    engine.submit("a", PROMPT, SamplingParams(max_tokens=12, n=6, seed=4, ignore_eos=True))
    results = finish(engine)
    assert sorted(results) == [("a", k) for k in range(6)]
    assert sorted(r.cached_tokens for r in results.values()) == [0] + [len(PROMPT) - 1] * 5
    assert len({tuple(r.token_ids) for r in results.values()}) == 6
    assert results["a", 0].token_ids == sample(engine, PROMPT, max_tokens=12, seed=4).token_ids
    engine.submit("b", PROMPT, SamplingParams(max_tokens=12, n=3, seed=4, ignore_eos=True))
    assert finish(engine)["b", 2].token_ids == results["a", 2].token_ids


def test_the_likeliest_tokens_come_with_the_sampled_one(engine: TorchSamplingEngine):
    result = sample(engine, PROMPT, max_tokens=5, temperature=0.7, logprobs=4)
    expected = (logits_of(engine, PROMPT + result.token_ids) / 0.7).log_softmax(-1)[len(PROMPT) - 1 : -1].topk(4)
    for top, ids, values in zip(result.top_logprobs, expected.indices, expected.values, strict=True):
        assert [token for token, _ in top] == ids.tolist()
        assert [value for _, value in top] == pytest.approx(values.tolist(), abs=1e-4)
    assert sample(engine, PROMPT, max_tokens=5, logprobs=0).top_logprobs == []


@pytest.mark.parametrize("max_prefill_tokens", [8192, 7])
def test_prompt_logprobs_are_those_of_a_plain_forward_pass(tiny_model: str, max_prefill_tokens: int):
    engine = TorchSamplingEngine(tiny_model, {"max_prefill_tokens": max_prefill_tokens})
    sample(engine, PROMPT, max_tokens=1)
    engine.submit("scored", PROMPT, SamplingParams(max_tokens=3, temperature=0.8, prompt_logprobs=2, n=2, seed=1))
    engine.submit("beside", PROMPT[:50], SamplingParams(max_tokens=3))
    results = finish(engine)
    scores = results["scored", 0].prompt_logprobs
    assert scores is not None
    assert results["scored", 1].prompt_logprobs is None
    assert results["beside", 0].prompt_logprobs is None
    expected = (logits_of(engine, PROMPT) / 0.8).log_softmax(-1)[:-1]
    own = expected.gather(1, torch.tensor(PROMPT[1:])[:, None])[:, 0]
    assert np.abs(np.asarray(scores.logprobs) - own.numpy()).max() < 1e-4
    assert [[token for token, _ in top] for top in scores.top] == expected.topk(2).indices.tolist()


def bent(logits: Tensor, prompt: list[int], sampled: list[int], params: SamplingParams) -> Tensor:
    """Penalties spelt out: vLLM's documentation of repetition_penalty, OpenAI's of the other two and of logit_bias."""
    logits = logits.clone()
    for token, bias in params.logit_bias.items():
        logits[token] += bias
    for token in {*prompt, *sampled}:
        logits[token] *= 1 / params.repetition_penalty if logits[token] > 0 else params.repetition_penalty
    for token in set(sampled):
        logits[token] -= params.frequency_penalty * sampled.count(token) + params.presence_penalty
    return logits


@pytest.mark.parametrize(
    "penalties",
    [
        {"repetition_penalty": 1.3},
        {"frequency_penalty": 0.9},
        {"presence_penalty": 1.5, "logit_bias": {7: 3.0, 8: -100.0}},
        {"repetition_penalty": 0.8, "frequency_penalty": -0.4, "presence_penalty": 0.2},
    ],
)
def test_penalties_bend_the_choice_and_not_the_logprobs(engine: TorchSamplingEngine, penalties: dict[str, object]):
    params = SamplingParams.model_validate({"max_tokens": 25, "temperature": 0, "ignore_eos": True, **penalties})
    engine.submit("bent", PROMPT, params)
    engine.submit("plain", PROMPT, SamplingParams(max_tokens=25, temperature=0, ignore_eos=True))
    results = finish(engine)
    result = results["bent", 0]
    logits = logits_of(engine, PROMPT + result.token_ids)[len(PROMPT) - 1 : -1]
    for step, token in enumerate(result.token_ids):
        expected = bent(logits[step], PROMPT, result.token_ids[:step], params)
        assert expected[token] > expected.max() - 1e-4
    own = logits.log_softmax(-1).gather(1, torch.tensor(result.token_ids)[:, None])[:, 0]
    assert np.abs(np.asarray(result.logprobs) - own.numpy()).max() < 1e-4
    assert results["plain", 0].token_ids == sample(engine, PROMPT, max_tokens=25, temperature=0).token_ids


def test_min_p_keeps_what_is_likely_enough(engine: TorchSamplingEngine):
    for seed in range(20):
        result = sample(engine, PROMPT, max_tokens=1, min_p=0.5, seed=seed)
        probabilities = logits_of(engine, PROMPT)[-1].softmax(-1)
        assert probabilities[result.token_ids[0]] >= 0.5 * probabilities.max() - 1e-6


def test_neighbours_with_other_rules_do_not_change_a_seeded_request(engine: TorchSamplingEngine):
    alone = sample(engine, PROMPT, max_tokens=20, seed=6)
    for i, rules in enumerate(
        ({"top_p": 0.8}, {"top_k": 5}, {"min_p": 0.1}, {"repetition_penalty": 1.4}, {"logprobs": 7})
    ):
        engine.submit(f"n{i}", PROMPT[i:], SamplingParams.model_validate({"max_tokens": 15, **rules}))
    assert sample(engine, PROMPT, max_tokens=20, seed=6).token_ids == alone.token_ids


def test_no_end_before_min_tokens(engine: TorchSamplingEngine):
    free = sample(engine, PROMPT, max_tokens=30, seed=3)
    text = engine.tokenizer.decode(free.token_ids, skip_special_tokens=True)
    params = {"max_tokens": 30, "seed": 3, "min_tokens": 25}
    ended = sample(engine, PROMPT, **params, stop_token_ids=free.token_ids[:25], stop=[text[2:4]])
    assert len(ended.token_ids) >= 25
    assert not set(ended.token_ids[:24]) & set(free.token_ids[:25])
    stopped = sample(engine, PROMPT, max_tokens=30, seed=3, min_tokens=20, stop=[text[2:4], text[3:5]])
    assert stopped.token_ids[:20] == free.token_ids[:20]


def test_the_first_stop_string_cuts_the_text_and_can_be_kept(engine: TorchSamplingEngine):
    free = sample(engine, PROMPT, max_tokens=40, seed=5)
    text = engine.tokenizer.decode(free.token_ids, skip_special_tokens=True)
    early, late = text[6:9], text[12:15]
    at = min(text.index(early), text.index(late))
    cut = sample(engine, PROMPT, max_tokens=40, seed=5, stop=[late, early])
    kept = sample(engine, PROMPT, max_tokens=40, seed=5, stop=[late, early], include_stop_str_in_output=True)
    assert cut.text == text[:at]
    assert kept.text.startswith(cut.text)
    assert kept.text[len(cut.text) :] in (early, late)
    assert kept.token_ids == cut.token_ids == free.token_ids[: len(cut.token_ids)]
    assert cut.finish_reason == "stop"


def streamed(engine: TorchSamplingEngine, **params: object) -> tuple[list[SamplePiece], SampleResult]:
    settings = SamplingParams.model_validate({"max_tokens": 40, "ignore_eos": True, **params})
    engine.submit("stream", PROMPT, settings, streamed=True)
    pieces: list[SamplePiece] = []
    while True:
        finished = engine.step()
        pieces.extend(engine.take_pieces())
        if finished:
            return pieces, finished[0]


@pytest.mark.parametrize("seed", range(4))
def test_pieces_put_together_are_the_beginning_of_the_result(engine: TorchSamplingEngine, seed: int):
    plain = sample(engine, PROMPT, max_tokens=40, seed=seed)
    pieces, result = streamed(engine, seed=seed, logprobs=2)
    assert (result.token_ids, result.text) == (plain.token_ids, plain.text)
    assert len(pieces) > 20
    tokens = [token for piece in pieces for token in piece.token_ids]
    assert tokens == result.token_ids[: len(tokens)]
    assert [value for piece in pieces for value in piece.logprobs] == result.logprobs[: len(tokens)]
    assert [top for piece in pieces for top in piece.top_logprobs] == result.top_logprobs[: len(tokens)]
    assert result.text.startswith("".join(piece.text for piece in pieces))
    stop = plain.text[9:13]
    pieces, stopped = streamed(engine, seed=seed, stop=[stop])
    told = "".join(piece.text for piece in pieces)
    assert stopped.text == plain.text[: plain.text.index(stop)]
    assert stopped.text.startswith(told)


def test_a_cancelled_request_frees_its_slots_at_once(tiny_model: str):
    engine = TorchSamplingEngine(tiny_model, {"max_running_rows": 2})
    engine.submit("long", PROMPT, SamplingParams(max_tokens=100, n=2, ignore_eos=True))
    engine.step()
    engine.submit("next", PROMPT, SamplingParams(max_tokens=2, ignore_eos=True))
    assert engine.load == (2, 1)
    assert engine.abort("long")
    assert engine.load == (0, 1)
    finished = {(result.request_id, result.finish_reason) for result in (*engine.step(), *engine.step())}
    assert finished == {("long", "abort"), ("next", "length")}


def test_one_request_that_goes_wrong_does_not_touch_the_others(tiny_model: str):
    engine = TorchSamplingEngine(tiny_model, {})
    expected = sample(engine, PROMPT, max_tokens=12, seed=1)
    engine.reset_prefix_cache()
    poison = 17
    with torch.no_grad():
        engine.model.get_input_embeddings().weight[poison] = float("nan")
        head = engine.model.get_output_embeddings()
        head.weight = torch.nn.Parameter(torch.nan_to_num(head.weight))
    engine.submit("good", PROMPT, SamplingParams(max_tokens=12, seed=1, ignore_eos=True))
    engine.submit("bad", [poison, *PROMPT], SamplingParams(max_tokens=12))
    results = finish(engine)
    assert results["bad", 0].finish_reason == "error"
    assert "not finite" in str(results["bad", 0].error)
    assert results["good", 0].finish_reason == "length"
    assert len(results["good", 0].token_ids) == len(expected.token_ids)
    again = sample(engine, PROMPT[:30], max_tokens=12)
    assert again.finish_reason == "length"


def test_requests_that_outgrow_the_memory_take_turns_and_lose_nothing(tiny_model: str):
    results = []
    for tokens in (100_000, 500):
        engine = TorchSamplingEngine(tiny_model, {"kv_cache_tokens": tokens})
        for i in range(6):
            params = SamplingParams(max_tokens=120 + 10 * i, seed=i, ignore_eos=True)
            engine.submit(str(i), PROMPT[i : i + 20], params)
        most = 0
        done: dict[str, SampleResult] = {}
        while engine.has_work:
            done |= {result.request_id: result for result in engine.step()}
            running = engine._running.requests
            most = max(most, len(running) * max((request.length for request in running), default=0))
        assert most <= tokens + 6
        results.append(done)
    for key, result in results[0].items():
        assert results[1][key].token_ids == result.token_ids
        assert results[1][key].logprobs == pytest.approx(result.logprobs, abs=1e-4)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"logprobs": 21}, "logprobs"),
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens 9"),
        ({"min_p": 1.5}, "min_p"),
        ({"n": 0}, "n"),
        ({"stop": [""]}, "stop"),
        ({"best_of": 3}, "best_of"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(params: dict[str, object], message: str):
    with pytest.raises(ValidationError, match=message):
        SamplingParams.model_validate(params)


def test_a_bias_outside_the_vocabulary_is_refused(engine: TorchSamplingEngine):
    with pytest.raises(UserError, match="logit_bias names token 4000"):
        engine.submit("x", PROMPT, SamplingParams(logit_bias={4000: 1.0}))
