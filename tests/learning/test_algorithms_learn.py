"""Every algorithm learns the demo's shell tasks: real engines, losses, sampling and token ledger; the shell in memory.

Success is measured on tasks that no training has seen, at temperature 1. Each test starts from the same policies, made
once: *skilled* (clean demonstrations) and *sloppy* (then mistaken ones), so reinforcement learning and preferences have
to bring back what is there but seldom done.
"""

import random
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders.shell_world import SYSTEM, TOOLS, drawn_tasks, rollouts_of
from learning.conftest import Policies

from drydock.chat.messages import parse_message
from drydock.chat.template import ChatTemplate
from drydock.engine.logprob_engine import LogProbEngine
from drydock.engine.sampling import TorchSamplingEngine
from drydock.engine.training import TrainingEngine
from drydock.recipes.shell_tasks.demonstration import clean_demonstration, sloppy_demonstration
from drydock.training.advantages import group_advantages
from drydock.training.batch import Row, policy_batch
from drydock.training.sft.batches import shuffled_batches
from drydock.training.sft.packing import supervised_batch
from drydock.training.sft.rows import supervised_row

pytestmark = [pytest.mark.learning, pytest.mark.timeout(600, func_only=True)]

HELD_OUT = drawn_tasks("held-out", 96)
TASKS, GROUP, MINI_BATCHES, STEPS = 8, 8, 2, 40
"""Two updates a batch, so that the second is off-policy and the losses differ."""
LORA = {"peft_type": "Lora", "r": 16, "lora_alpha": 32, "target_modules": "all-linear"}

ALGORITHMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "grpo": ({"eps_clip": 0.2}, {"optimizer": {"lr": 3e-4}}),
    "gspo": (
        {"importance_sampling_level": "sequence", "eps_clip": 3e-3, "eps_clip_higher": 4e-3},
        {"optimizer": {"lr": 3e-4}},
    ),
    "cispo": ({"use_cispo_loss": True, "eps_clip": 1.0, "eps_clip_higher": 4.0}, {"optimizer": {"lr": 3e-4}}),
    "lora-gspo": (
        {"importance_sampling_level": "sequence", "eps_clip": 3e-3, "eps_clip_higher": 4e-3},
        {"optimizer": {"lr": 1e-3}, "peft_config": LORA},
    ),
}


def success(sampler: TorchSamplingEngine, template: ChatTemplate) -> float:
    """Share of the held-out tasks that the sampler's policy solves, sampling at temperature 1."""
    return statistics.fmean(group[0].reward for group in rollouts_of(HELD_OUT, sampler, template))


def sync(trainer: TrainingEngine, sampler: TorchSamplingEngine, file: Path) -> None:
    file.unlink(missing_ok=True)
    weights = trainer.export_weights(file)
    sampler.load_weights(weights.path, policy_version=weights.policy_version, fingerprint=weights.fingerprint)


def held_out_loss(model: Path, rows: list[Row]) -> float:
    """Mean loss of the assistant's tokens."""
    batch = supervised_batch(rows, 768)
    scores = LogProbEngine(str(model), {"max_seq_len": 768}).forward({"kwargs": batch["kwargs"]})
    mask = batch["context"]["loss_mask"]
    return float(-(scores["post_process_outputs"]["logprobs"] * mask).sum() / mask.sum())


def row_of(conversation: list[dict[str, Any]], template: ChatTemplate) -> Row:
    messages = [{"role": "system", "content": SYSTEM}, *conversation]
    return supervised_row([parse_message(m, n) for n, m in enumerate(messages)], TOOLS, template, "made here")


def test_sft_teaches_the_skill(policies: Policies):
    before = success(TorchSamplingEngine(str(policies.random), {}), policies.template)
    after = success(TorchSamplingEngine(str(policies.skilled), {}), policies.template)
    rows = [row_of(clean_demonstration(task), policies.template) for task in HELD_OUT]
    losses = [held_out_loss(model, rows) for model in (policies.random, policies.skilled)]
    print(f"SFT: success {before:.2f} to {after:.2f}; held-out loss {losses[0]:.3f} to {losses[1]:.3f}")
    assert before == 0.0
    assert after > 0.8
    assert losses[1] < 0.2 * losses[0]
    assert statistics.fmean(policies.losses[-10:]) < 0.1 * policies.losses[0]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_reinforcement_learning_brings_the_skill_back(policies: Policies, name: str, tmp_path: Path):
    settings, config = ALGORITHMS[name]
    trainer = TrainingEngine(str(policies.sloppy), {"max_seq_len": 768, **config}, seed=1)
    sampler = TorchSamplingEngine(str(policies.sloppy), {}, seed=1)
    before = success(sampler, policies.template)
    rewards: list[float] = []
    ratios: list[float] = []
    for step in range(STEPS):
        groups = rollouts_of(drawn_tasks(f"train/{step}", TASKS), sampler, policies.template, group_size=GROUP)
        rewards.append(statistics.fmean(rollout.reward for group in groups for rollout in group))
        for number in range(MINI_BATCHES):
            rows = []
            for group in groups[number::MINI_BATCHES]:
                advantages = group_advantages([rollout.reward for rollout in group], normalize_by_std=True)
                for rollout, advantage in zip(group, advantages, strict=True):
                    sample = rollout.sample
                    if advantage:
                        rows.append(Row(sample.token_ids, sample.loss_mask, sample.logprobs, advantage, 1.0))
            if not rows:
                continue
            scale = {"loss_agg_mode": "seq-mean-token-mean", "global_batch_size": TASKS * GROUP // MINI_BATCHES}
            metrics = trainer.forward_backward(policy_batch(rows, loss_fn="grpo", loss_config=settings | scale))
            trainer.step(config["optimizer"]["lr"] * min(1.0, (step + 1) / 5))
            mismatch = metrics["metrics"]["logprob_diff_max"]
            assert number > 0 or mismatch < 1e-3, "sampler and trainer are the same policy"
            ratios.append(mismatch)
        sync(trainer, sampler, tmp_path / "weights.safetensors")
    after = success(sampler, policies.template)
    shown = " ".join(f"{statistics.fmean(rewards[n : n + 4]):.2f}" for n in range(0, STEPS, 4))
    print(f"{name}: held-out success {before:.2f} to {after:.2f}; rewards, means of four steps: {shown}")
    assert max(ratios) > 1e-2, "the second update of a batch is off-policy"
    assert before < 0.5
    assert after > 0.6
    assert after > before + 0.3
    assert statistics.fmean(rewards[-4:]) > statistics.fmean(rewards[:4]) + 0.25


def test_dpo_brings_the_skill_back(policies: Policies):
    """Pairs of a clean and a mistaken conversation about one task; the reference is the policy it starts from."""
    rng = random.Random("pairs")
    pairs = [
        (
            row_of(clean_demonstration(task), policies.template),
            row_of(sloppy_demonstration(task, rng), policies.template),
        )
        for task in drawn_tasks("dpo", 480)
    ]
    trainer = TrainingEngine(str(policies.sloppy), {"max_seq_len": 768, "optimizer": {"lr": 1e-4}}, seed=1)
    reference = LogProbEngine(str(policies.sloppy), {"max_seq_len": 768})
    sampler = TorchSamplingEngine(str(policies.sloppy), {}, seed=1)
    before = success(sampler, policies.template)
    history: list[dict[str, float]] = []
    for _, drawn in zip(range(40), shuffled_batches(pairs, 16, "dpo"), strict=False):
        batch = supervised_batch([row for pair in drawn for row in pair])
        scores = reference.forward({"kwargs": batch["kwargs"]})["post_process_outputs"]["logprobs"]
        batch["context"] |= {
            "ref_log_probs_shifted": scores,
            "pair_ids": np.repeat(np.arange(len(drawn)), 2),
            "chosen": np.tile([1, 0], len(drawn)),
        }
        batch["processing"] = {"loss_fn": "dpo", "config": {"beta": 0.1}, "post": []}
        result = trainer.forward_backward(batch)
        history.append({"loss": result["avg_loss"], **result["metrics"]})
        trainer.step()
    file = policies.sloppy.parent / "dpo.safetensors"
    sync(trainer, sampler, file)
    after = success(sampler, policies.template)
    first, last = history[0], history[-1]
    print(
        f"DPO: held-out success {before:.2f} to {after:.2f}; loss {first['loss']:.3f} to {last['loss']:.3f}, "
        f"margin {last['rewards_margin']:.2f}, accuracy {last['rewards_accuracy']:.2f}"
    )
    assert first["loss"] == pytest.approx(np.log(2), abs=1e-4)
    assert last["rewards_accuracy"] > 0.9
    assert after > before + 0.3
