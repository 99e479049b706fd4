"""An evaluation's report for people."""

from drydock.cli.tables import quantity, show_pairs, show_table
from drydock.training.evaluation_report import EvaluationReport


def show_evaluation(report: EvaluationReport) -> None:
    """Prints tasks, outcomes and the numbers of the whole."""
    show_table(
        ("task", "reward", "graded", "masked", "passed", "turns", "tokens"),
        [
            (
                task.task,
                _number(task.reward),
                f"{task.graded} of {task.rollouts}",
                str(task.masked),
                str(task.passed),
                f"{task.turns:.1f}",
                "not counted" if task.tokens is None else quantity(round(task.tokens)),
            )
            for task in report.tasks
        ],
    )
    show_table(
        ("outcome", "rollouts", "masked", "blame"),
        [(one.outcome, str(one.rollouts), str(one.masked), one.blame) for one in report.outcomes],
    )
    counted = "not counted by the endpoint" if report.sampled_tokens is None else quantity(report.sampled_tokens)
    subject = ", ".join(f"{name} {value}" for name, value in report.subject.items())
    show_pairs(
        [
            ("evaluated", subject),
            ("mean reward", f"{_number(report.mean_reward)}{_interval(report)}"),
            *((f"pass@{one.k}", f"{_number(one.value)} over {one.tasks} tasks") for one in report.pass_at),
            ("rollouts", f"{report.rollouts}: {report.graded} graded, {report.masked} masked"),
            ("replaced", str(report.replaced) if report.replaced else None),
            ("sampled tokens", counted),
            ("sampling", ", ".join(f"{name} {value}" for name, value in report.sampling.items())),
            ("policy version", ", ".join(map(str, report.policy_versions))),
            ("not trainable", None if report.trainable else "an endpoint gives no token ids: no training samples"),
            ("seconds", f"{report.seconds:.1f}"),
            ("report", f"{report.run_folder}/evaluation.json"),
        ]
    )


def _number(value: float | None) -> str:
    return "none graded" if value is None else f"{value:.3f}"


def _interval(report: EvaluationReport) -> str:
    if report.interval is None:
        return "" if report.mean_reward is None else " (one task: no confidence interval)"
    found = report.interval
    return f" ({found.confidence:.0%} interval {found.low:.3f} to {found.high:.3f}, {found.method})"
