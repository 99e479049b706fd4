"""Every kind of model through training, saving, resuming and weight sync, all weights and with an adapter."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from builders.architectures import NAMES, build_architecture
from builders.train_batch import Row, grouped_rows, request_of
from transformers import AutoModelForCausalLM

from drydock.engine.sampling import TorchSamplingEngine
from drydock.engine.training import TrainingEngine
from drydock.engine.weights import fingerprint, unique_weights
from drydock.wire.rest import SamplingParams

ADAPTERS: dict[str, dict[str, Any]] = {
    "qwen3-moe": {
        "target_modules": ["q_proj", "v_proj"],
        "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"],
    }
}


def rows_to_learn() -> list[Row]:
    rng = np.random.default_rng(0)
    return [([i, *rng.integers(0, 390, 9).tolist()], [0] + [1] * 9) for i in range(4)]


def learn(engine: TrainingEngine, steps: int) -> list[float]:
    losses = []
    for _ in range(steps):
        losses.append(engine.forward_backward(request_of(rows_to_learn(), loss_fn="causal_cross_entropy"))["avg_loss"])
        engine.step()
    return losses


def check_sampler(sampler: TorchSamplingEngine, trainer: TrainingEngine) -> None:
    """Sampled log-probs of ragged requests are the trainer's."""
    prompts = {f"{length}": list(range(7, 7 + length)) for length in (40, 3, 21)}
    for key, prompt in prompts.items():
        sampler.submit(key, prompt, SamplingParams(max_tokens=6, ignore_eos=True))
    while sampler.has_work:
        for result in sampler.step():
            prompt = prompts[result.request_id]
            row: Row = (prompt + result.token_ids, [0] * len(prompt) + [1] * 6)
            scores = trainer.forward(request_of([row]))["post_process_outputs"]["logprobs"][0]
            assert np.abs(scores[len(prompt) - 1 : -1] - np.asarray(result.logprobs)).max() < 5e-5


@pytest.mark.parametrize("adapter", [False, True], ids=["all weights", "adapter"])
@pytest.mark.parametrize("name", NAMES)
def test_a_model_learns_is_saved_exactly_and_sampled_as_trained(
    name: str, adapter: bool, tiny_model: str, tmp_path: Path
):
    folder = build_architecture(name, tmp_path / "model", tiny_model)
    config: dict[str, Any] = {"optimizer": {"lr": 2e-2 if adapter else 1e-2}}
    if adapter:
        targets = ADAPTERS.get(name, {"target_modules": "all-linear"})
        config["peft_config"] = {"peft_type": "Lora", "r": 16, "lora_alpha": 32} | targets
    engine = TrainingEngine(folder, config)
    losses = learn(engine, 30)
    assert losses[-1] < 0.4 * losses[0]

    engine.save(tmp_path / "resumable")
    engine.save(tmp_path / "merged", "weights-only", merge=True)
    resumed = TrainingEngine(folder, config, seed=5)
    resumed.load(tmp_path / "resumable")
    exported = [e.export_weights(tmp_path / f"{i}.safetensors") for i, e in enumerate((engine, resumed))]
    assert exported[0].fingerprint == exported[1].fingerprint
    assert learn(resumed, 2) == learn(engine, 2)

    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    whole = resumed.export_weights(tmp_path / "w.safetensors", "hf")
    ids = torch.arange(30)[None]
    engine.load(tmp_path / "resumable")
    with torch.no_grad():
        assert (merged(input_ids=ids).logits - engine.model(input_ids=ids).logits).abs().max() < 1e-4
    if not adapter:
        assert fingerprint(unique_weights(merged)) == exported[0].fingerprint

    sampler = TorchSamplingEngine(folder, {"max_running_rows": 2})
    sampler.load_weights(exported[0].path, policy_version=30, fingerprint=exported[0].fingerprint)
    check_sampler(sampler, engine)
    sampler.load_weights(whole.path, policy_version=32, fingerprint=whole.fingerprint)
    check_sampler(sampler, resumed)


@pytest.mark.parametrize("name", NAMES)
def test_recomputed_activations_and_micro_batches_change_no_gradient(name: str, tiny_model: str, tmp_path: Path):
    folder = build_architecture(name, tmp_path / "model", tiny_model)
    rows = grouped_rows(np.random.default_rng(0), groups=2, group_size=3, system=70, prompt=60, response=30)
    request = request_of(rows, advantages=np.random.default_rng(0).normal(size=len(rows)).tolist())
    gradients = []
    for config in (
        {"prefix_sharing": False},
        {"activation_checkpointing": True, "mb_spec": {"max_tokens_per_mb": 300}},
    ):
        engine = TrainingEngine(folder, config)
        engine.forward_backward(request)
        gradients.append(torch.cat([p.grad.flatten() for p in engine.model.parameters() if p.grad is not None]))
    assert (gradients[0] - gradients[1]).abs().max() < 2e-5 * gradients[0].abs().max()
