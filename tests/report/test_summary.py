"""What the terminal shows when a run has ended."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from drydock.proxy.audit import TokenAudit
from drydock.report.metrics import MetricsFile
from drydock.report.summary import print_summary
from drydock.training.run_folder import RunFolder


def shown(root: Path, updates: list[int]) -> str:
    folder = RunFolder(root, "run")
    for step, count in enumerate(updates, start=1):
        metrics = {"reward/avg_raw_reward": 0.5, "rollouts/graded": 3, "rollouts/masked": 1, "policy/updates": count}
        MetricsFile(folder.metrics).write(step, metrics | {"outcome/graded": 3, "outcome/verifier_error": 1})
    output = io.StringIO()
    counts = {"retokenized_tokens": 2, "unrecorded_tokens": 1, "wrong_logprobs": 3, "unexplained_branches": 4}
    audit = TokenAudit(trained_tokens=7, **counts)
    print_summary(folder, audit, Console(file=output, width=200))
    return output.getvalue()


def test_means_masked_rollouts_and_the_audit_are_said(tmp_path: Path) -> None:
    text = shown(tmp_path, [1] * 6)
    assert "rollouts: 18 graded, 6 masked (verifier_error 6)" in text
    assert "7 with loss mask 1" in text
    assert "2 of them re-tokenized, 1 of them not in the sampler's record, 3 of them with another log-prob" in text
    assert "4 branches without a reason" in text
    assert "first 5" in text
    assert "no step changed the model" not in text


@pytest.mark.parametrize(("updates", "warned"), [([0, 0], True), ([0, 1], False), ([], False)])
def test_a_run_without_an_update_is_not_passed_off_as_training(
    tmp_path: Path, updates: list[int], warned: bool
) -> None:
    assert ("no step changed the model" in shown(tmp_path, updates)) is warned


def test_the_newest_checkpoint_is_the_model(tmp_path: Path) -> None:
    assert "trainer.save_final_checkpoint=true" in shown(tmp_path, [1])
    for step in (2, 10):
        (tmp_path / "checkpoints" / f"step_{step}").mkdir(parents=True)
    assert "checkpoints/step_10" in shown(tmp_path, [1])
