"""What an evaluation says of its rollouts, in metrics.jsonl and in its report."""

from builders.trajectories import trajectory

from drydock.proxy.record import EndpointUse, TurnRecord
from drydock.rollout.outcome import Outcome
from drydock.rollout.trajectory import Trajectory
from drydock.training.evaluation import evaluation_metrics
from drydock.training.evaluation_report import EvaluationReport, evaluation_report

TURN = TurnRecord(
    index=0,
    parent=None,
    prompt_length=0,
    prompt_sha256="",
    sampled_ids=[],
    logprobs=[],
    policy_version=None,
    finish_reason="stop",
    started_at=0.0,
    seconds=0.0,
    branch=0,
)


def rollouts() -> list[Trajectory]:
    """Task a: 1, 0, 0, 1. Task b: 0, and three that broke or were masked."""
    of_a = [trajectory("a", reward, repetition=place) for place, reward in enumerate((1.0, 0.0, 0.0, 1.0))]
    of_b = [
        trajectory("b", 0.0),
        trajectory("b", None, outcome=Outcome.TURNS_EXHAUSTED, repetition=1),
        trajectory("b", None, outcome=Outcome.SANDBOX_ERROR, repetition=2),
        trajectory("b", None, outcome=Outcome.SANDBOX_ERROR, repetition=3),
    ]
    return [*of_a, *of_b]


def report(trajectories: list[Trajectory]) -> EvaluationReport:
    return evaluation_report(trajectories, subject={}, sampling={}, replaced=0, seconds=1, run_folder="run")


def test_masked_rollouts_are_counted_and_not_scored() -> None:
    metrics = evaluation_metrics(rollouts(), 2.0)
    assert metrics["eval/all/avg_score"] == 2 / 5
    assert (metrics["eval/all/rollouts"], metrics["eval/all/masked"]) == (8, 3)
    assert metrics["eval/all/pass_at_1"] == (0.5 + 0) / 2
    assert metrics["eval/all/pass_at_2"] == 1 - 1 / 6  # of a alone
    assert metrics["eval/all/pass_at_4"] == 1
    assert (metrics["eval/all/ci_low"], metrics["eval/all/ci_high"]) == (0, 0.5)
    assert metrics["eval/all/outcome/sandbox_error"] == 2


def test_without_a_graded_rollout_there_are_no_numbers() -> None:
    metrics = evaluation_metrics([trajectory("a", None, outcome=Outcome.SANDBOX_ERROR)], 1.0)
    assert metrics["eval/all/avg_score"] is metrics["eval/all/ci_low"] is metrics["eval/all/pass_at_1"] is None
    assert evaluation_metrics([], 1.0)["eval/all/avg_score"] is None


def test_the_report_tells_the_same_and_each_task() -> None:
    found, metrics = report(rollouts()), evaluation_metrics(rollouts(), 1.0)
    assert found.mean_reward == metrics["eval/all/avg_score"]
    assert {one.k: one.value for one in found.pass_at} == {k: metrics[f"eval/all/pass_at_{k}"] for k in (1, 2, 4)}
    assert [one.tasks for one in found.pass_at] == [2, 1, 1]
    assert [(task.task, task.reward, task.graded, task.masked, task.passed) for task in found.tasks] == [
        ("a", 0.5, 4, 0, 2),
        ("b", 0.0, 1, 3, 0),
    ]
    assert {one.outcome: (one.rollouts, one.masked) for one in found.outcomes} == {
        "graded": (5, 0),
        "sandbox_error": (2, 2),
        "turns_exhausted": (1, 1),
    }
    assert found.trainable


def test_tokens_that_an_endpoint_did_not_count_are_not_a_number() -> None:
    one = trajectory("a", 1.0)
    one.record.endpoint = EndpointUse(url="https://host/v1", model="m")
    assert report([one]).sampled_tokens == 0
    one.record.turns.append(TURN)
    one.record.endpoint.completion_tokens.append(None)
    found = report([one])
    assert found.sampled_tokens is None
    assert not found.trainable
