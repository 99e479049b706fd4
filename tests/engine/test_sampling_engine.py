from pathlib import Path

import numpy as np
import pytest
import torch
from builders.train_batch import request_of

from drydock.engine.sampling import TorchSamplingEngine
from drydock.engine.training import TrainingEngine
from drydock.engine.types import SampleResult
from drydock.errors import UserError
from drydock.wire.rest import SamplingParams


def finish(engine: TorchSamplingEngine) -> dict[str, SampleResult]:
    results: dict[str, SampleResult] = {}
    while engine.has_work:
        results |= {result.request_id: result for result in engine.step()}
    return results


def sample(engine: TorchSamplingEngine, prompt: list[int], **params: object) -> SampleResult:
    engine.submit("only", prompt, SamplingParams.model_validate(params))
    return finish(engine)["only"]


def trainer_logprobs(trainer: TrainingEngine, conversations: list[tuple[list[int], list[int]]]) -> list[np.ndarray]:
    """Log-probs of the sampled tokens of each (prompt, sampled), as the trainer computes them."""
    rows = [(prompt + sampled, [0] * len(prompt) + [0] * len(sampled)) for prompt, sampled in conversations]
    request = request_of(rows, loss_fn="causal_cross_entropy", post=["compute_logprobs"])
    logprobs = trainer.forward_backward(request)["post_process_outputs"]["logprobs"]
    return [
        logprobs[i, len(prompt) - 1 : len(prompt) + len(sampled) - 1]
        for i, (prompt, sampled) in enumerate(conversations)
    ]


@pytest.fixture(scope="module")
def engine(tiny_model: str) -> TorchSamplingEngine:
    return TorchSamplingEngine(tiny_model, {"max_running_rows": 16})


@pytest.fixture(scope="module")
def trainer(tiny_model: str) -> TrainingEngine:
    return TrainingEngine(tiny_model, {})


PROMPT = list(range(40, 100))


@pytest.mark.parametrize("prefix_cache_tokens", [0, 300, 20_000])
def test_sampled_logprobs_equal_the_trainers_over_many_ragged_turns(
    tiny_model: str, trainer: TrainingEngine, prefix_cache_tokens: int
):
    """Mixed lengths, slots reused, prefixes taken from running and finished requests, cache evictions."""
    engine = TorchSamplingEngine(
        tiny_model, {"max_running_rows": 5, "prefix_cache_tokens": prefix_cache_tokens, "max_prefill_tokens": 64}
    )
    rng = np.random.default_rng(0)
    system = rng.integers(0, 390, 50).tolist()
    histories = {f"r{i}": system + rng.integers(0, 390, int(rng.integers(1, 90))).tolist() for i in range(12)}
    histories |= {"twin": list(histories["r0"]), "short": [3]}
    turns = dict.fromkeys(histories, 0)
    conversations: list[tuple[list[int], SampleResult]] = []

    def submit(key: str) -> None:
        params = SamplingParams(max_tokens=int(rng.integers(1, 25)), ignore_eos=True)
        engine.submit(f"{key}/{turns[key]}", histories[key], params, key if rng.random() < 0.7 else None)

    for key in histories:
        submit(key)
    while engine.has_work:
        for result in engine.step():
            key = result.request_id.partition("/")[0]
            conversations.append((histories[key], result))
            histories[key] = histories[key] + result.token_ids + rng.integers(0, 390, int(rng.integers(1, 40))).tolist()
            turns[key] += 1
            if turns[key] < 4:
                submit(key)
    assert len(conversations) == 14 * 4
    expected = trainer_logprobs(trainer, [(prompt, result.token_ids) for prompt, result in conversations])
    for (_, result), logprobs in zip(conversations, expected, strict=True):
        assert np.abs(np.asarray(result.logprobs) - logprobs).max() < 1e-4
    cached = engine.stats["cached_tokens"] / engine.stats["prompt_tokens"]
    assert cached > {0: 0.05, 300: 0.1, 20_000: 0.7}[prefix_cache_tokens]


def test_a_next_turn_computes_only_its_new_tokens(engine: TorchSamplingEngine):
    engine.reset_prefix_cache()
    first = sample(engine, PROMPT, max_tokens=20, ignore_eos=True)
    again = sample(engine, PROMPT + first.token_ids + [5, 6, 7], max_tokens=2, ignore_eos=True)
    assert (first.cached_tokens, again.cached_tokens) == (0, len(PROMPT) + 19)
    engine.reset_prefix_cache()
    assert sample(engine, PROMPT, max_tokens=1).cached_tokens == 0


def test_requests_that_begin_alike_compute_the_prompt_once(engine: TorchSamplingEngine):
    engine.reset_prefix_cache()
    for i in range(8):
        engine.submit(str(i), PROMPT, SamplingParams(max_tokens=3, seed=i, ignore_eos=True))
    cached = sorted(result.cached_tokens for result in finish(engine).values())
    assert cached == [0] + [len(PROMPT) - 1] * 7


def test_a_seed_gives_the_same_tokens_whatever_runs_beside_it(engine: TorchSamplingEngine):
    engine.reset_prefix_cache()
    alone = sample(engine, PROMPT, max_tokens=15, seed=11, ignore_eos=True)
    for i in range(9):
        engine.submit(f"noise{i}", PROMPT[i:], SamplingParams(max_tokens=4 + i))
    crowded = sample(engine, PROMPT, max_tokens=15, seed=11, ignore_eos=True)
    assert crowded.token_ids == alone.token_ids
    assert crowded.token_ids != sample(engine, PROMPT, max_tokens=15, seed=12, ignore_eos=True).token_ids


def test_without_seeds_the_engine_seed_decides(tiny_model: str):
    runs = []
    for seed in (1, 1, 2):
        engine = TorchSamplingEngine(tiny_model, {}, seed=seed)
        for i in range(3):
            engine.submit(str(i), PROMPT, SamplingParams(max_tokens=8))
        runs.append([result.token_ids for _, result in sorted(finish(engine).items())])
    assert runs[0] == runs[1] != runs[2]
    assert len({tuple(ids) for ids in runs[0]}) == 3


def test_temperature_zero_agrees_with_hugging_face_generate(engine: TorchSamplingEngine):
    result = sample(engine, PROMPT, max_tokens=12, temperature=0, ignore_eos=True)
    inputs = torch.tensor([PROMPT])
    expected = engine.model.generate(
        inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=12, min_new_tokens=12, do_sample=False
    )
    assert result.token_ids == expected[0, len(PROMPT) :].tolist()


def test_logprobs_are_those_of_the_tempered_distribution_before_truncation(engine: TorchSamplingEngine):
    result = sample(engine, PROMPT, max_tokens=6, temperature=0.6, top_p=0.8, top_k=20, ignore_eos=True)
    logits = engine.model(input_ids=torch.tensor([PROMPT + result.token_ids]), use_cache=False).logits[0].detach()
    expected = (logits / 0.6).log_softmax(-1)[len(PROMPT) - 1 : -1]
    chosen = expected.gather(1, torch.tensor(result.token_ids)[:, None])[:, 0]
    assert np.abs(np.asarray(result.logprobs) - chosen.numpy()).max() < 1e-4
    assert all((row > value).sum() < 20 for row, value in zip(expected, chosen, strict=True))


def test_a_request_ends_at_a_stop_token_which_its_text_leaves_out(engine: TorchSamplingEngine):
    free = sample(engine, PROMPT, max_tokens=30, seed=3, ignore_eos=True)
    token = next(t for i, t in enumerate(free.token_ids) if i > 3 and t not in free.token_ids[:i])
    at = free.token_ids.index(token)
    stopped = sample(engine, PROMPT, max_tokens=30, seed=3, ignore_eos=True, stop_token_ids=[token])
    assert stopped.token_ids == free.token_ids[: at + 1]
    assert len(stopped.logprobs) == at + 1
    assert stopped.finish_reason == "stop"
    assert stopped.text == engine.tokenizer.decode(free.token_ids[:at], skip_special_tokens=True)


def test_the_models_end_of_turn_ends_a_request_unless_ignored(engine: TorchSamplingEngine):
    end = engine.tokenizer.eos_token_id
    with torch.no_grad():
        embedding = engine.model.get_input_embeddings().weight
        kept = embedding[end].clone()
        hidden = engine.model.model(input_ids=torch.tensor([PROMPT]), use_cache=False).last_hidden_state[0, -1]
        embedding[end] = hidden * 10
        try:
            ended = sample(engine, PROMPT, max_tokens=9, temperature=0)
            ignored = sample(engine, PROMPT, max_tokens=9, temperature=0, ignore_eos=True)
        finally:
            embedding[end] = kept
            engine.reset_prefix_cache()
    assert (ended.token_ids, ended.text, ended.finish_reason) == ([end], "", "stop")
    assert (len(ignored.token_ids), ignored.finish_reason) == (9, "length")


def test_a_stop_string_ends_a_request_even_across_tokens(engine: TorchSamplingEngine):
    free = sample(engine, PROMPT, max_tokens=40, seed=5, ignore_eos=True)
    text = engine.tokenizer.decode(free.token_ids, skip_special_tokens=True)
    stop = text[8:12]
    stopped = sample(engine, PROMPT, max_tokens=40, seed=5, ignore_eos=True, stop=["never seen", stop])
    assert stopped.finish_reason == "stop"
    assert stopped.text == text[: text.index(stop)]
    assert stopped.token_ids == free.token_ids[: len(stopped.token_ids)]
    assert stop in engine.tokenizer.decode(stopped.token_ids, skip_special_tokens=True)
    assert stop not in engine.tokenizer.decode(stopped.token_ids[:-1], skip_special_tokens=True)


def test_an_aborted_request_returns_what_it_has(engine: TorchSamplingEngine):
    engine.submit("running", PROMPT, SamplingParams(max_tokens=50, ignore_eos=True))
    engine.step()
    engine.submit("waiting", PROMPT, SamplingParams(max_tokens=50))
    assert engine.abort("running")
    assert engine.abort("waiting")
    assert not engine.abort("unknown")
    results = finish(engine)
    assert {(r.finish_reason, len(r.token_ids)) for r in results.values()} == {("abort", 2), ("abort", 0)}
    assert not engine.has_work


def test_more_requests_than_rows_or_memory_wait_their_turn(tiny_model: str):
    engine = TorchSamplingEngine(tiny_model, {"max_running_rows": 4, "kv_cache_tokens": 250})
    for i in range(10):
        engine.submit(str(i), PROMPT[: 20 + i], SamplingParams(max_tokens=5, ignore_eos=True))
    engine.submit("huge", PROMPT * 8, SamplingParams(max_tokens=5, ignore_eos=True))
    most = 0
    results: list[SampleResult] = []
    while engine.has_work:
        results += engine.step()
        most = max(most, engine.load[0])
    assert len(results) == 11
    assert most <= 4
    assert all(len(result.token_ids) == 5 for result in results)


def test_max_tokens_is_cut_to_the_context(tiny_model: str):
    engine = TorchSamplingEngine(tiny_model, {"max_seq_len": 64})
    result = sample(engine, PROMPT, max_tokens=50, ignore_eos=True)
    assert (len(result.token_ids), result.finish_reason) == (4, "length")
    with pytest.raises(UserError, match="max_seq_len 64"):
        engine.submit("long", PROMPT + PROMPT, SamplingParams())


def test_bad_prompts_are_refused(engine: TorchSamplingEngine):
    for prompt, message in (([], "empty"), ([400], "vocabulary"), ([-1], "vocabulary")):
        with pytest.raises(UserError, match=message):
            engine.submit("bad", prompt, SamplingParams())
    engine.submit("twice", [1], SamplingParams(max_tokens=1))
    with pytest.raises(UserError, match="already"):
        engine.submit("twice", [1], SamplingParams(max_tokens=1))
    finish(engine)


def test_new_weights_apply_to_requests_in_flight(tiny_model: str, tmp_path: Path):
    engine, other = TorchSamplingEngine(tiny_model, {}), TrainingEngine(tiny_model, {"optimizer": {"lr": 0.02}})
    other.forward_backward(request_of([(PROMPT, [1] * len(PROMPT))], loss_fn="causal_cross_entropy"))
    other.step()
    engine.submit("flying", PROMPT, SamplingParams(max_tokens=10, ignore_eos=True))
    for _ in range(3):
        engine.step()
    exported = other.export_weights(tmp_path / "w.safetensors")
    engine.load_weights(exported.path, policy_version=1, fingerprint=exported.fingerprint)
    flying = finish(engine)["flying"]
    assert (len(flying.token_ids), flying.policy_version) == (10, 0)
    expected = trainer_logprobs(other, [(PROMPT, flying.token_ids)])[0]
    difference = np.abs(np.asarray(flying.logprobs) - expected)
    assert difference[4:].max() < 1e-4 < difference[:4].max()
    assert sample(engine, PROMPT, max_tokens=1).policy_version == 1


def test_a_diverged_policy_is_an_error_not_garbage(tiny_model: str, tmp_path: Path):
    engine, good = TorchSamplingEngine(tiny_model, {}), TrainingEngine(tiny_model, {}).export_weights(tmp_path / "w")
    with torch.no_grad():
        engine.model.get_input_embeddings().weight.fill_(float("nan"))
    result = sample(engine, PROMPT, max_tokens=3)
    assert (result.finish_reason, result.token_ids) == ("error", [])
    assert "not finite" in str(result.error)
    engine.load_weights(good.path, policy_version=1, fingerprint=good.fingerprint)
    assert len(sample(engine, PROMPT, max_tokens=3, ignore_eos=True).token_ids) == 3
