"""The two engines together learn: cross-entropy memorizes, policy gradients climb a reward, in seconds."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders.train_batch import Row, request_of

from drydock.engine.sampling import TorchSamplingEngine
from drydock.engine.training import TrainingEngine
from drydock.engine.types import SampleResult
from drydock.wire.rest import SamplingParams

GROUPS, GROUP_SIZE, NEW_TOKENS = 4, 8, 6


def test_cross_entropy_memorizes_and_the_sampler_recites(tiny_model: str, tmp_path: Path):
    engine = TrainingEngine(tiny_model, {"optimizer": {"lr": 5e-3}})
    rng = np.random.default_rng(0)
    rows: list[Row] = [([i, *rng.integers(0, 390, 9).tolist()], [0] + [1] * 9) for i in range(4)]
    losses = []
    for _ in range(40):
        losses.append(engine.forward_backward(request_of(rows, loss_fn="causal_cross_entropy"))["avg_loss"])
        engine.step()
    assert losses[-1] < 0.1 < 4 < losses[0]
    exported = engine.export_weights(tmp_path / "w.safetensors")
    sampler = TorchSamplingEngine(tiny_model, {})
    sampler.load_weights(exported.path, policy_version=40, fingerprint=exported.fingerprint)
    for ids, _ in rows:
        sampler.submit(str(ids[0]), ids[:1], SamplingParams(max_tokens=9, temperature=0, ignore_eos=True))
    while sampler.has_work:
        for result in sampler.step():
            assert result.token_ids == rows[int(result.request_id)][0][1:]


def reward(result: SampleResult) -> float:
    return float(np.mean([token % 2 == 0 for token in result.token_ids]))


def rollouts(sampler: TorchSamplingEngine, prompts: list[list[int]]) -> list[SampleResult]:
    for group, prompt in enumerate(prompts):
        for i in range(GROUP_SIZE):
            sampler.submit(f"{group}/{i}", prompt, SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True))
    results: dict[str, SampleResult] = {}
    while sampler.has_work:
        results |= {result.request_id: result for result in sampler.step()}
    return [results[f"{group}/{i}"] for group in range(len(prompts)) for i in range(GROUP_SIZE)]


GSPO = {"importance_sampling_level": "sequence", "eps_clip": 0.03, "loss_agg_mode": "seq-mean-token-mean"}
GRPO = {"importance_sampling_level": "token", "eps_clip": 0.2, "eps_clip_higher": 0.28, "c_clip": 3.0}
LORA = {"peft_type": "Lora", "r": 16, "lora_alpha": 32, "target_modules": "all-linear"}


@pytest.mark.parametrize(
    ("config", "trained", "steps"),
    [
        (GSPO, {"optimizer": {"lr": 6e-3}}, 30),
        (GRPO, {"optimizer": {"lr": 6e-3}}, 30),
        (GSPO, {"optimizer": {"lr": 1e-2}, "peft_config": LORA}, 40),
    ],
    ids=["gspo", "grpo", "lora-gspo"],
)
def test_policy_gradients_raise_the_reward(
    tiny_model: str, tmp_path: Path, config: dict[str, Any], trained: dict[str, Any], steps: int
):
    """Reward: share of even tokens. Two mini-batches a batch, so that the second is off-policy and clips."""
    trainer = TrainingEngine(tiny_model, trained, seed=1)
    sampler = TorchSamplingEngine(tiny_model, {}, seed=1)
    rng = np.random.default_rng(1)
    prompts = [rng.integers(0, 390, 20 + 7 * group).tolist() for group in range(GROUPS)]
    history: list[float] = []
    ratios: list[float] = []
    for step in range(steps):
        results = rollouts(sampler, prompts)
        rewards = np.array([reward(result) for result in results]).reshape(GROUPS, GROUP_SIZE)
        history.append(float(rewards.mean()))
        centred = rewards - rewards.mean(1, keepdims=True)
        advantages = (centred / (rewards.std(1, keepdims=True) + 1e-6)).ravel()
        for half in (slice(0, None, 2), slice(1, None, 2)):
            chosen = list(range(len(results)))[half]
            rows: list[Row] = []
            old: list[list[float]] = []
            for i in chosen:
                prompt = prompts[i // GROUP_SIZE]
                rows.append((prompt + results[i].token_ids, [0] * len(prompt) + [1] * NEW_TOKENS))
                old.append([0.0] * len(prompt) + results[i].logprobs)
            scores = [float(advantages[i]) for i in chosen]
            outcome = trainer.forward_backward(request_of(rows, config=config, advantages=scores, old_logprobs=old))
            if half.start == 0:
                assert outcome["metrics"]["logprob_diff_max"] < 1e-4
            else:
                ratios.append(outcome["metrics"]["logprob_diff_max"])
            trainer.step()
        exported = trainer.export_weights(tmp_path / f"{step}.safetensors")
        sampler.load_weights(exported.path, policy_version=trainer.global_steps, fingerprint=exported.fingerprint)
    assert np.mean(history[:2]) < 0.65
    assert np.mean(history[-3:]) > 0.9
    assert min(ratios) > 1e-3
