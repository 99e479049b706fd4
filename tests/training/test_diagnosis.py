"""The diagnosis beside a run: what it remembers, when it speaks, when it stops, and the edges of its checks."""

from pathlib import Path
from typing import Any

import pytest
from builders.trajectories import sample, trajectory
from hypothesis import given
from hypothesis import strategies as st

from drydock.errors import Blame, EngineError, RequestFailed
from drydock.proxy.record import TurnRecord
from drydock.report.metrics import MetricsFile
from drydock.rollout.outcome import BLAME, Outcome
from drydock.rollout.trajectory import Trajectory
from drydock.training.config_file import known_keys, load_run_config
from drydock.training.diagnosis import Diagnosis, DiagnosisStop, StepFacts, diagnosis_metrics, recall
from drydock.training.diagnosis.findings_file import FindingsFile
from drydock.training.diagnosis.registry import CHECKS
from drydock.training.diagnosis_config import DiagnosisConfig
from drydock.training.run_folder import RunFolder
from drydock.training.train_step import assign_advantages

RUN = load_run_config(None, ["data.train=t", "trainer.policy.model.path=m"])


class Seen:
    """A diagnosis in `folder` that keeps what it prints."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.lines: list[str] = []
        self.folder = RunFolder(folder, "run")
        self.diagnosis = Diagnosis(DiagnosisConfig(**settings), self.folder, self.lines.append)

    def step(self, number: int, trajectories: list[Trajectory], allowed: tuple[int, ...] = (0,), **metrics: Any):
        named = {name.replace("__", "/"): value for name, value in metrics.items()}
        findings = self.diagnosis.check(StepFacts(number, named, trajectories, allowed))
        return {finding.check: finding for finding in findings}


def turn(version: int | None = 0, finish_reason: str = "stop") -> TurnRecord:
    return TurnRecord(
        index=0,
        parent=None,
        prompt_length=1,
        prompt_sha256="",
        sampled_ids=[1],
        logprobs=[-0.1],
        policy_version=version,
        finish_reason=finish_reason,
        started_at=0.0,
        seconds=0.0,
        branch=0,
    )


def rollout(task: str = "a", reward: float | None = 1.0, repetition: int = 0, **turns: Any) -> Trajectory:
    made = trajectory(task, reward, repetition=repetition)
    made.record.turns = [turn(**turns)]
    return made


def broken(task: str, repetition: int, outcome: Outcome = Outcome.VERIFIER_ERROR) -> Trajectory:
    made = trajectory(task, None, repetition=repetition, outcome=outcome, error="no file\nnor anything else")
    made.blame = BLAME[outcome]
    return made


def group(task: str, *rewards: float) -> list[Trajectory]:
    return [rollout(task, reward, place) for place, reward in enumerate(rewards)]


def test_each_check_is_a_key_of_the_configuration() -> None:
    keys = [key.removeprefix("diagnosis.") for key in known_keys() if key.startswith("diagnosis.")]
    levels = [key for key in keys if getattr(DiagnosisConfig(), key) in ("off", "warn", "stop")]
    assert sorted(levels) == sorted(CHECKS)
    assert all(any(key.startswith(f"{check}_") for check in CHECKS) for key in keys if key not in levels)


def test_levels_are_set_on_the_command_line() -> None:
    run = load_run_config(None, ["data.train=t", "trainer.policy.model.path=m", "diagnosis.no_signal=stop"])
    assert run.diagnosis.no_signal == "stop"


def test_a_healthy_step_has_no_finding_and_leaves_no_file(tmp_path: Path) -> None:
    seen = Seen(tmp_path)
    healthy = {
        "policy__policy_loss": 0.1,
        "policy__raw_grad_norm": 1.0,
        "policy__policy_entropy": 0.3,
        "policy__ppo_clip_ratio": 0.1,
        "mismatch__logprob_diff_mean": 0.01,
    }
    for number in range(1, 20):
        assert seen.step(number, [*group("a", 0, 1, 1), *group("b", 0, 0, 1)], **healthy) == {}
    assert seen.lines == []
    assert not seen.folder.diagnosis.exists()


def test_a_check_that_is_off_says_nothing_and_one_that_stops_raises_when_asked(tmp_path: Path) -> None:
    nan = float("nan")
    assert Seen(tmp_path, gradient="off").step(1, group("a", 0, 1), policy__policy_loss=nan) == {}
    seen = Seen(tmp_path)
    findings = list(seen.step(1, group("a", 0, 1), policy__policy_loss=nan, policy__raw_grad_norm=1.0).values())
    assert diagnosis_metrics(findings) == {"diagnosis/gradient": 1}
    with pytest.raises(DiagnosisStop) as stopped:
        seen.diagnosis.stop_if_told(findings)
    assert (stopped.value.blame, stopped.value.exit_code) == (Blame.MODEL, 3)
    for part in ("after step 1: gradient", "the loss is nan", "reward.lowest", "metrics.jsonl: policy/policy_loss"):
        assert part in str(stopped.value)
    assert EngineError("x").exit_code == 1


def test_a_warning_alone_does_not_stop(tmp_path: Path) -> None:
    seen = Seen(tmp_path)
    findings = seen.step(1, group("a", 0, 1), mismatch__logprob_diff_mean=0.2)
    assert findings["mismatch"].level == "warn"
    seen.diagnosis.stop_if_told(list(findings.values()))


def test_a_warning_about_something_else_is_printed_again(tmp_path: Path) -> None:
    seen = Seen(tmp_path, task_errors_least=2, task_errors_steps=1, verifier_failing="off")
    for number, task in enumerate(("a", "a", "b"), start=1):
        seen.step(number, [broken(task, 0), broken(task, 1), *group("c", 0, 1)])
    assert [line.split(" (")[0] for line in seen.lines] == [
        "step 1: warning: task_errors",
        "step 3: warning: task_errors",
    ]
    assert [one["about"] for one in FindingsFile(seen.folder.diagnosis).read()] == ["a", "a", "b"]
    assert seen.step(4, group("c", 0, 1)) == {}
    assert seen.lines[-1] == "step 4: task_errors is seen no more"


def test_a_policy_that_is_not_stated_is_not_judged(tmp_path: Path) -> None:
    seen = Seen(tmp_path)
    assert seen.step(1, [rollout(version=None), rollout(version=4)], allowed=(3, 4)) == {}
    older = seen.step(2, [rollout(version=2), rollout(version=4)], allowed=(3, 4))["policy_version"]
    assert (older.about, older.cause) == (
        "older",
        "1 of 2 rollouts have turns of a wrong policy: version 2, expected 3 or 4",
    )
    between = seen.step(3, [rollout(version=4)], allowed=(3, 5))["policy_version"]
    assert between.about == "older"


def test_a_mismatch_that_was_not_measured_is_judged_by_the_mean_difference(tmp_path: Path) -> None:
    seen = Seen(tmp_path)
    unknown = {"mismatch__logprob_diff_mean": float("nan")}
    assert seen.step(1, group("a", 0, 1), **unknown, policy__approx_kl=-0.01) == {}
    assert "mismatch" in seen.step(2, group("a", 0, 1), **unknown, policy__approx_kl=-0.2)
    assert "mismatch" in seen.step(3, group("a", 0, 1), mismatch__logprob_diff_mean=0.2, policy__approx_kl=0.0)
    assert seen.step(4, group("a", 0, 1), allowed=(0, 1), mismatch__logprob_diff_mean=0.2) == {}


def test_groups_with_a_signal_in_between_begin_the_count_anew(tmp_path: Path) -> None:
    seen = Seen(tmp_path, no_signal_groups=4)
    flat, signal = [*group("a", 1, 1), *group("b", 0, 0)], [*group("a", 1, 1), *group("b", 0, 1)]
    found = [bool(seen.step(n, one)) for n, one in enumerate([flat, signal, flat, flat, signal, flat], start=1)]
    assert found == [False, False, False, True, False, False]


def test_what_broke_is_not_counted_as_cut_off(tmp_path: Path) -> None:
    cut = [rollout(), rollout(finish_reason="length")]
    cut[0].outcome = Outcome.TURNS_EXHAUSTED
    found = Seen(tmp_path).step(1, [*cut, broken("b", 0, Outcome.SANDBOX_ERROR)])["truncated"]
    assert found.cause == "2 of 2 rollouts were cut off, having used up turns (1), a turn's tokens (1)"
    assert Seen(tmp_path).step(1, [*cut, rollout()]) == {}


def test_the_reward_may_rise_and_tasks_may_differ_without_a_jump(tmp_path: Path) -> None:
    seen = Seen(tmp_path, no_signal="off", constant_reward="off")
    for number in range(1, 40):
        easy = number % 3
        rewards = [1.0 if place < easy + number // 8 else 0.0 for place in range(8)]
        assert seen.step(number, [*group("a", *rewards), *group(f"b{number}", *rewards[1:], 0.0)]) == {}, number


def test_a_reward_that_falls_is_a_jump(tmp_path: Path) -> None:
    seen = Seen(tmp_path)
    for number in range(1, 9):
        assert seen.step(number, [*group("a", 1, 0.9, 1, 1), *group("b", 1, 1, 1, 0.9)]) == {}
    jump = seen.step(9, [*group("a", 0, 0, 0.1, 0), *group("b", 0, 0.1, 0, 0)])["reward_jump"]
    assert jump.about == "down"
    assert jump.cause.startswith("the mean reward is 0.025, below the 0.975 of the 8 steps before by ")


def test_an_entropy_below_the_floor_needs_no_comparison(tmp_path: Path) -> None:
    seen = Seen(tmp_path)
    found = [bool(seen.step(n, group("a", 0, 1), policy__policy_entropy=0.001)) for n in range(1, 5)]
    assert found == [False, False, True, True]
    assert seen.step(5, group("a", 0, 1)) == {}


def test_a_gap_in_a_figure_is_not_a_finding_of_the_step_without_it(tmp_path: Path) -> None:
    seen = Seen(tmp_path)
    found = [bool(seen.step(n, group("a", 0, 1), policy__ppo_clip_ratio=0.9)) for n in range(1, 4)]
    assert found == [False, False, True]
    assert seen.step(4, group("a", 0, 1)) == {}


def test_a_refused_update_is_recognised_and_other_failures_are_left_alone(tmp_path: Path) -> None:
    seen = Seen(tmp_path)
    refused = RequestFailed("step for job j: request r ended as failed: the gradient norm is nan; the step was …")
    with pytest.raises(DiagnosisStop, match="after step 4: gradient"):
        seen.diagnosis.stop_if_known(4, refused)
    assert [one["check"] for one in FindingsFile(seen.folder.diagnosis).read()] == ["gradient"]
    loss = RequestFailed("ended as failed: loss 'grpo' is -inf on rows [0]; gradients since …")
    with pytest.raises(DiagnosisStop, match="loss 'grpo' is -inf"):
        seen.diagnosis.stop_if_known(4, loss)
    for other in (RequestFailed("the worker was lost"), EngineError("the gradient norm is nan")):
        seen.diagnosis.stop_if_known(4, other)


def test_a_run_that_goes_on_finds_what_it_would_have_found(tmp_path: Path) -> None:
    settings = {"no_signal_groups": 3, "reward_jump_steps": 2, "entropy_collapse_baseline": 1}
    whole = Seen(tmp_path, **settings)
    metrics = MetricsFile(whole.folder.metrics)
    for number in range(1, 7):
        lone = [rollout("e", 1), broken("e", 1)]
        trajectories = [*group("a", number, number), broken("b", 0), broken("b", 1), *lone]
        assign_advantages(trajectories, RUN)
        replaced = broken("b", 0)
        replaced.replaced = True
        cut_off = [rollout("c", 1), broken("c", 1, Outcome.CANCELLED), *group("d", 0, 1)]
        for one in (*trajectories, replaced, *cut_off):
            one.step = number
            one.write(whole.folder.trajectories(number, "train"))
        findings = whole.step(number, trajectories, policy__updates=1, policy__policy_entropy=1 / number)
        record = {"policy/updates": 1, "policy/policy_entropy": 1 / number} | diagnosis_metrics([*findings.values()])
        metrics.write(number, record)
        metrics.write(number, {"eval/all/avg_score": 1.0})
    again = recall(whole.folder, 4, DiagnosisConfig(**settings))
    assert [one.step for one in again] == [1, 2, 3, 4]
    assert [one.groups for one in again] == [one.groups for one in whole.diagnosis.steps[:4]]
    resumed = Diagnosis(DiagnosisConfig(**settings), whole.folder, lambda line: None, again)
    before = FindingsFile(whole.folder.diagnosis).read()
    FindingsFile(whole.folder.diagnosis).keep_until(4)
    for number in (5, 6):
        files = sorted(whole.folder.trajectories(number, "train").glob("[abe]_?.*"))
        found = [one for one in map(Trajectory.read, files) if not one.replaced]
        facts = {"policy/updates": 1, "policy/policy_entropy": 1 / number}
        resumed.check(StepFacts(number, facts, found, (0,)))
    after = FindingsFile(whole.folder.diagnosis).read()
    assert [(one["step"], one["check"], one["cause"]) for one in after] == [
        (one["step"], one["check"], one["cause"]) for one in before
    ]


numbers = st.none() | st.floats() | st.integers(-3, 3)
rollouts = st.builds(
    lambda task, reward, outcome, turns, mask: _any_rollout(task, reward, outcome, turns, mask),
    st.sampled_from("abc"),
    st.none() | st.floats(-3e38, 3e38),
    st.sampled_from(Outcome),
    st.lists(st.tuples(st.none() | st.integers(0, 3), st.sampled_from(["stop", "length"])), max_size=2),
    st.lists(st.integers(0, 1), max_size=3),
)


def _any_rollout(
    task: str, reward: float | None, outcome: Outcome, turns: list[tuple[int | None, str]], mask: list[int]
) -> Trajectory:
    made = trajectory(task, reward, [sample(mask)] if mask else [], outcome=outcome)
    made.blame = BLAME[outcome]
    made.record.turns = [turn(version, reason) for version, reason in turns]
    return made


@given(
    steps=st.lists(
        st.tuples(
            st.lists(rollouts, max_size=6),
            st.dictionaries(
                st.sampled_from(
                    [
                        "policy/policy_loss",
                        "policy/raw_grad_norm",
                        "policy/policy_entropy",
                        "policy/ppo_clip_ratio",
                        "policy/approx_kl",
                        "mismatch/logprob_diff_mean",
                    ]
                ),
                numbers,
            ),
            st.lists(st.integers(0, 3), max_size=2, unique=True).map(sorted),
        ),
        max_size=6,
    )
)
def test_no_step_whatever_it_holds_breaks_a_check(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[list[Trajectory], dict[str, Any], list[int]]]
) -> None:
    settings = {
        "no_signal_groups": 1,
        "reward_jump_steps": 2,
        "reward_jump_sigmas": 0.1,
        "constant_reward_steps": 1,
        "constant_reward_tasks": 2,
        "task_errors_least": 1,
        "entropy_collapse_baseline": 1,
        "entropy_collapse_steps": 1,
        "clip_fraction_steps": 1,
    }
    folder = RunFolder(tmp_path_factory.mktemp("any"), "run")
    diagnosis = Diagnosis(DiagnosisConfig(**settings), folder, lambda line: None)
    for number, (trajectories, metrics, allowed) in enumerate(steps, start=1):
        for finding in diagnosis.check(StepFacts(number, metrics, trajectories, allowed)):
            assert finding.cause
            assert finding.remedy
            assert finding.evidence
