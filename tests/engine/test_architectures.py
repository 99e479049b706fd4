"""Both engines on architectures that differ where it matters to them: positions, windows, masks, caches."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from builders.architectures import SIZES, save_random_model
from builders.train_batch import grouped_rows, request_of
from torch import Tensor

from drydock.engine.sampling import TorchSamplingEngine
from drydock.engine.training import TrainingEngine
from drydock.engine.types import SampleResult
from drydock.wire.rest import SamplingParams

ATTENTION = {
    "llama": lambda: transformers.LlamaConfig(**SIZES),
    "one window (Mistral)": lambda: transformers.MistralConfig(**SIZES, sliding_window=24),
    "mixed windows (Gemma 3)": lambda: transformers.Gemma3TextConfig(
        **SIZES, head_dim=8, sliding_window=24, layer_types=["sliding_attention", "full_attention"]
    ),
    "softcap, eager (Gemma 2)": lambda: transformers.Gemma2Config(
        **SIZES, head_dim=8, sliding_window=24, query_pre_attn_scalar=8
    ),
    "sinks (gpt-oss)": lambda: transformers.GptOssConfig(**SIZES, head_dim=8, num_local_experts=4, sliding_window=24),
    "learned positions (GPT-2)": lambda: transformers.GPT2Config(
        vocab_size=400, n_positions=512, n_embd=32, n_layer=2, n_head=4, bos_token_id=None, eos_token_id=395
    ),
}
LINEAR = transformers.MambaConfig(vocab_size=400, hidden_size=32, num_hidden_layers=2)
HYBRID = transformers.Qwen3_5TextConfig(
    **{**SIZES, "num_hidden_layers": 4},
    head_dim=8,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=8,
    linear_value_head_dim=8,
)
ALIBI = transformers.BloomConfig(vocab_size=400, hidden_size=32, n_layer=2, n_head=4)


def gradient(engine: TrainingEngine) -> Tensor:
    return torch.cat([p.grad.flatten() for p in engine.model.parameters() if p.grad is not None])


@pytest.mark.parametrize("name", list(ATTENTION))
def test_attention_of_any_kind_trains_with_shared_prefixes_and_samples_exactly(
    name: str, tiny_model: str, tmp_path: Path
):
    folder = save_random_model(ATTENTION[name](), tmp_path, tiny_model)
    rows = grouped_rows(np.random.default_rng(0), groups=2, group_size=5, system=90, prompt=90, response=40)
    request = request_of(rows, loss_fn="causal_cross_entropy", post=["compute_logprobs"])
    shared, plain = TrainingEngine(folder, {}), TrainingEngine(folder, {"prefix_sharing": False})
    results = [engine.forward_backward(request) for engine in (shared, plain)]
    assert shared.prefix_sharing_off_because is None
    assert results[0]["metrics"]["prefix_sharing/computed_tokens"] < 0.5 * sum(len(ids) for ids, _ in rows)
    ours, theirs = (result["post_process_outputs"]["logprobs"] for result in results)
    assert np.abs(ours - theirs).max() < 2e-5
    assert (gradient(shared) - gradient(plain)).abs().max() < 1e-5 * gradient(plain).abs().max()

    sampler = TorchSamplingEngine(folder, {"max_running_rows": 3})
    prompts = {str(i): ids[: 60 + 17 * i] for i, (ids, _) in enumerate(rows[:5])}
    for key, prompt in prompts.items():
        sampler.submit(key, prompt, SamplingParams(max_tokens=8 + int(key), ignore_eos=True))
    while sampler.has_work:
        for result in sampler.step():
            ids = torch.tensor([prompts[result.request_id] + result.token_ids])
            with torch.no_grad():
                logprobs = shared.model(input_ids=ids, use_cache=False).logits[0].log_softmax(-1)
            first = len(prompts[result.request_id])
            expected = logprobs[first - 1 : -1].gather(1, ids[0, first:, None])[:, 0].numpy()
            assert np.abs(np.asarray(result.logprobs) - expected).max() < 1e-4
    assert sampler.stats["cached_tokens"] > 0


def test_a_cache_without_keys_trains_unshared_and_says_so(tiny_model: str, tmp_path: Path):
    engine = TrainingEngine(save_random_model(LINEAR, tmp_path, tiny_model), {})
    rows = grouped_rows(np.random.default_rng(0), groups=1, group_size=3, system=90, prompt=9, response=5)
    metrics = engine.forward_backward(request_of(rows))["metrics"]
    assert metrics["prefix_sharing/off/cache_layer_LinearAttentionLayer"] == 1
    assert metrics["prefix_sharing/computed_tokens"] >= metrics["prefix_sharing/row_tokens"]


@pytest.mark.parametrize("config", [HYBRID, ALIBI], ids=["hybrid (Qwen3.5)", "alibi (Bloom)"])
def test_what_cannot_run_ragged_is_sampled_row_by_row_exactly(
    config: transformers.PreTrainedConfig, tiny_model: str, tmp_path: Path
):
    sampler = TorchSamplingEngine(save_random_model(config, tmp_path, tiny_model), {"max_running_rows": 3})
    rng = np.random.default_rng(0)
    shared = rng.integers(0, 390, 70).tolist()
    prompts = {"0": shared, "1": rng.integers(0, 390, 30).tolist(), "2": shared, "3": [5]}
    for key, prompt in prompts.items():
        sampler.submit(key, prompt, SamplingParams(max_tokens=7 + int(key), ignore_eos=True, n=2, prompt_logprobs=0))
    done: dict[str, SampleResult] = {}
    while sampler.has_work:
        for result in sampler.step():
            done[f"{result.request_id}/{result.index}"] = result
            prompt = prompts[result.request_id]
            if result.index == 1 and result.request_id in "012":
                prompts[f"{result.request_id}+"] = prompt + result.token_ids + [7, 8, 9]
                sampler.submit(f"{result.request_id}+", prompts[f"{result.request_id}+"], SamplingParams(max_tokens=5))
    assert len(done) == 11
    for result in done.values():
        prompt = prompts[result.request_id]
        ids = torch.tensor([prompt + result.token_ids])
        with torch.no_grad():
            logprobs = sampler.model(input_ids=ids, use_cache=False).logits[0].log_softmax(-1)
        own = logprobs[:-1].gather(1, ids[0, 1:, None])[:, 0].numpy()
        assert np.abs(np.asarray(result.logprobs) - own[len(prompt) - 1 :]).max() < 1e-4
        if result.prompt_logprobs is not None:
            assert np.abs(np.asarray(result.prompt_logprobs.logprobs) - own[: len(prompt) - 1]).max(initial=0) < 1e-4
    assert done["0/1"].cached_tokens == len(shared) - 1
    assert done["0+/0"].cached_tokens == len(shared) + len(done["0/1"].token_ids) - 1
