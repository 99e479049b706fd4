"""Every check of the diagnosis, provoked in a real run of the demo's model: what is said, written down and stopped."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders.altered_service import AlteredService
from builders.demo_run import DIFFERENT_REWARDS, NO_REWARD
from builders.diagnosed_run import DiagnosedRun, demo_run
from builders.local_sandbox import needs_sandbox

from drydock.training.diagnosis.registry import CHECKS

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.timeout(180),
    needs_sandbox,
]

NOTHING = "#!/bin/bash\necho 0 > /logs/verifier/reward.txt\n"
LARGE = "#!/bin/bash\ndate +5.1%N > /logs/verifier/reward.txt\n"
HUGE = "#!/bin/bash\ndate +2.%Ne38 > /logs/verifier/reward.txt\n"
"""Different ones, all of them valid, whose gradients are beyond single precision."""

PROVOKED_HERE = {
    "warned": {"no_signal", "constant_reward", "truncated", "verifier_failing", "task_errors"},
    "silent": {"no_call_captured", "no_trainable_tokens"},
    "hasty": {"entropy_collapse", "reward_jump"},
    "altered": {"mismatch", "clip_fraction", "gradient"},
    "foreign": {"policy_version"},
}


def checks_of(run: DiagnosedRun, step: int) -> set[str]:
    return {finding["check"] for finding in run.findings if finding["step"] == step}


def assert_all_is_written(run: DiagnosedRun, step: int) -> None:
    """The step is on disk with its findings, and the evidence of these is where they say."""
    written = next(one for one in run.steps if one["step"] == step)
    assert {name for name in written if name.startswith("diagnosis/")} == {
        f"diagnosis/{check}" for check in checks_of(run, step)
    }
    for finding in run.findings:
        assert finding["cause"]
        assert finding["remedy"]
        for evidence in finding["evidence"]:
            file, _, metrics = evidence.partition(": ")
            assert (run.folder / file).is_file(), evidence
            assert file == "metrics.jsonl" or not metrics


def test_every_check_is_provoked_in_a_run() -> None:
    assert set().union(*PROVOKED_HERE.values()) == set(CHECKS)


@pytest.fixture(scope="module")
def warned(tmp_path_factory: pytest.TempPathFactory) -> DiagnosedRun:
    """Three tasks that give nothing and one without a verifier that works, a policy that says nothing to the end."""
    return demo_run(
        tmp_path_factory.mktemp("warned"),
        "trainer.train_batch_size=4",
        "trainer.epochs=2",
        "diagnosis.no_signal_groups=3",
        "diagnosis.constant_reward_steps=1",
        "diagnosis.constant_reward_tasks=3",
        "diagnosis.truncated_share=0.5",
        "diagnosis.verifier_failing_share=0.25",
        "diagnosis.task_errors_least=2",
        verifiers=[NOTHING, NOTHING, NOTHING, NO_REWARD],
    )


@pytest.mark.slow
def test_warnings_are_written_in_each_step_and_the_run_goes_on(warned: DiagnosedRun) -> None:
    assert warned.code == 0, warned.output
    assert checks_of(warned, 1) == PROVOKED_HERE["warned"]
    assert checks_of(warned, 2) == {"no_signal", "constant_reward", "truncated"}
    assert {finding["level"] for finding in warned.findings} == {"warn"}
    for step in (1, 2):
        assert_all_is_written(warned, step)


@pytest.mark.slow
def test_a_warning_is_printed_when_it_comes_and_when_it_is_gone(warned: DiagnosedRun) -> None:
    for check in PROVOKED_HERE["warned"]:
        assert warned.output.count(f": warning: {check} (blame: ") == 1, warned.output
    assert "step 2: verifier_failing is seen no more" in warned.output
    assert "step 2: task_errors is seen no more" in warned.output
    assert "no_signal is seen no more" not in warned.output


@pytest.mark.slow
def test_a_warning_gives_its_figures(warned: DiagnosedRun) -> None:
    causes = {(one["step"], one["check"]): one["cause"] for one in warned.findings}
    assert causes[1, "no_signal"].startswith("in the last 3 groups all rewards of a group were equal")
    assert causes[2, "no_signal"].startswith("in the last 6 groups")
    assert causes[1, "constant_reward"] == "all 6 rollouts of 3 tasks in 1 step(s) got the reward 0"
    assert causes[1, "verifier_failing"].startswith("the verifier gave no reward to 2 of 8 rollouts, of 1 task(s)")
    [broken] = warned.of("task_errors")
    assert broken["cause"] == "2 of 2 broken rollouts are of the task train-0003, most often verifier_error"
    assert broken["about"] == "train-0003"
    assert all("train-0003" in evidence for evidence in broken["evidence"][:-1])
    assert "of 6 rollouts were cut off, having used up" in causes[1, "truncated"]


@pytest.mark.slow
def test_rewards_without_a_single_call_to_the_policy_stop_the_run(tmp_path: Path) -> None:
    run = demo_run(
        tmp_path,
        "agent.import_path=builders.odd_agents:ScriptAgent",
        verifiers=[DIFFERENT_REWARDS] * 4,
        environment={"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])},
    )
    assert run.code == 3, run.output
    assert checks_of(run, 1) == PROVOKED_HERE["silent"]
    assert [one["step"] for one in run.steps] == [1]
    assert_all_is_written(run, 1)
    assert "error (harness): stopped by diagnosis after step 1: no_trainable_tokens" in run.output
    assert "none of the 4 graded rollouts has a token that can be trained" in run.output
    assert "With diagnosis.no_trainable_tokens=warn the run would have gone on" in run.output
    assert "Traceback" not in run.output
    [silent] = run.of("no_call_captured")
    assert silent["cause"] == "4 of 4 graded rollouts made no call that reached the chat proxy"


@pytest.mark.slow
def test_a_learning_rate_that_is_far_too_high_and_other_tasks_are_seen(tmp_path: Path) -> None:
    run = demo_run(
        tmp_path,
        "trainer.policy.optimizer_config.lr=0.3",
        "trainer.max_training_steps=3",
        "diagnosis.entropy_collapse_baseline=1",
        "diagnosis.entropy_collapse_steps=1",
        "diagnosis.entropy_collapse_share=0.5",
        "diagnosis.reward_jump_steps=2",
        verifiers=[*[DIFFERENT_REWARDS] * 4, *[LARGE] * 2],
    )
    assert run.code == 0, run.output
    [jump] = run.of("reward_jump")
    assert (jump["step"], jump["about"]) == (3, "up")
    entropies = {one["step"]: one["policy/policy_entropy"] for one in run.steps}
    collapsed = {finding["step"] for finding in run.of("entropy_collapse")}
    assert collapsed, entropies
    assert collapsed == {step for step in entropies if entropies[step] < 0.5 * entropies[1]}
    for step in (1, 2, 3):
        assert_all_is_written(run, step)


@pytest.mark.slow
def test_a_gradient_that_the_trainer_refuses_stops_the_run(tmp_path: Path) -> None:
    run = demo_run(tmp_path, verifiers=[HUGE] * 4)
    assert run.code == 3, run.output
    [finding] = run.of("gradient")
    assert "the gradient norm is inf" in finding["cause"]
    assert "error (model): stopped by diagnosis after step 1: gradient" in run.output
    assert len(list((run.folder / "trajectories" / "step_1" / "train").iterdir())) == 4
    assert (run.folder / "trajectories" / "step_1" / "train" / "train-0000_0.json").is_file()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AlteredService]:
    with AlteredService(tmp_path_factory.mktemp("altered")) as service:
        yield service


def run_against(service: AlteredService, folder: Path, *settings: str) -> DiagnosedRun:
    return demo_run(
        folder,
        f"service.base_url={service.base_url}",
        *settings,
        verifiers=[DIFFERENT_REWARDS] * 4,
        environment={"DRYDOCK_SERVICE_TOKEN": service.token},
    )


@pytest.mark.slow
def test_a_sampler_with_other_probabilities_and_a_trainer_that_takes_nan_are_seen(
    tmp_path: Path, service: AlteredService
) -> None:
    def other_probabilities_and_nan(result: dict[str, Any]) -> None:
        for sampled in result.get("results", ()):
            sampled["logprobs"] = [logprob - 0.5 for logprob in sampled["logprobs"]]
        if "global_steps" in result:
            result["metrics"]["grad_norm"] = float("nan")

    service.alter = other_probabilities_and_nan
    run = run_against(service, tmp_path, "diagnosis.clip_fraction_steps=1", "diagnosis.clip_fraction_share=0.2")
    assert run.code == 3, run.output
    assert checks_of(run, 1) >= PROVOKED_HERE["altered"]
    assert_all_is_written(run, 1)
    assert "stopped by diagnosis after step 1: gradient (blame: model): the gradient's norm is nan" in run.output
    [mismatch] = run.of("mismatch")
    assert mismatch["cause"] == "log-probs of trainer and sampler differ by 0.5 nats a token, more than 0.05"
    assert run.steps[0]["policy/raw_grad_norm"] is None
    assert run.steps[0]["policy/ppo_clip_ratio"] > 0.2


def test_turns_of_another_policy_stop_the_run(tmp_path: Path, service: AlteredService) -> None:
    def of_another_policy(result: dict[str, Any]) -> None:
        for sampled in result.get("results", ()):
            sampled["policy_version"] += 7

    service.alter = of_another_policy
    run = run_against(service, tmp_path)
    assert run.code == 3, run.output
    assert_all_is_written(run, 1)
    [finding] = run.of("policy_version")
    assert finding["cause"] == "4 of 4 rollouts have turns of a wrong policy: version 7, expected 0"
    assert (finding["level"], finding["about"], finding["blame"]) == ("stop", "newer", "infrastructure")
