"""`drydock eval`: a model, a checkpoint or somebody else's endpoint on a run's evaluation tasks, without training.

Exit codes: 0 with a report, 1 when no rollout was graded or something broke, 2 when the user can mend it, 128 + the
signal's number when a signal stopped it.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drydock.cli.run_arguments import ConfigArgument, Overrides, read_run

if TYPE_CHECKING:
    from drydock.training.eval_config import EvalSubject


def evaluate(
    config: ConfigArgument,
    overrides: Overrides = None,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="JOB/CHECKPOINT", help="A checkpoint that the configured service keeps.")
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option(metavar="URL", help="An OpenAI-compatible endpoint, up to and including /v1.")
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="The model's name at the endpoint.")] = None,
    key_variable: Annotated[
        str, typer.Option("--key-env", metavar="NAME", help="Environment variable with the endpoint's key.")
    ] = "OPENAI_API_KEY",
    out: Annotated[
        Path | None, typer.Option(help="Folder of the evaluation. Default: the run's, with -eval after its name.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON; progress goes to standard error.")
    ] = False,
) -> None:
    """Evaluate a model on Harbor tasks: mean reward with its confidence interval, pass@k, each task."""
    from drydock.sandbox.locations import driver_state_dir
    from drydock.sandbox.rootless import enter_user_namespace
    from drydock.training.eval_config import EvalConfig

    subject = _subject(checkpoint, endpoint, model, key_variable)
    run, secrets = read_run(EvalConfig, config, overrides)
    beside = run.trainer.ckpt_path or Path("runs") / run.trainer.run_name
    run.trainer.ckpt_path = (out or beside.with_name(f"{beside.name}-eval")).resolve()
    subject.check(run)
    if run.sandbox.environment == "local":
        enter_user_namespace()
    from rich.console import Console

    from drydock.cli.evaluation_tables import show_evaluation
    from drydock.report.progress import RunProgress
    from drydock.training.eval_run import launch_evaluation

    progress = RunProgress(Console(stderr=True, highlight=False, soft_wrap=True) if as_json else None)
    status, report = launch_evaluation(run, subject, secrets, run.sandbox.state_dir or driver_state_dir(), progress)
    if report is None:
        raise typer.Exit(status)
    if as_json:
        typer.echo(report.model_dump_json(indent=1))
    else:
        show_evaluation(report)
    raise typer.Exit(0 if report.graded else 1)


def _subject(checkpoint: str | None, endpoint: str | None, model: str | None, key_variable: str) -> "EvalSubject":
    """Raises UserError for options that do not go together. The key leaves the environment."""
    from pydantic import SecretStr

    from drydock.errors import UserError
    from drydock.proxy.endpoint.client import EndpointAddress
    from drydock.training.eval_config import EvalSubject, read_checkpoint

    if (endpoint is None) != (model is None):
        raise UserError(
            "--endpoint URL and --model NAME belong together: give both; a model of the service is named "
            "with trainer.policy.model.path=…"
        )
    address = None
    if endpoint is not None and model is not None:
        key = os.environ.pop(key_variable, "").strip()
        address = EndpointAddress(endpoint, model, SecretStr(key) if key else None)
    return EvalSubject(read_checkpoint(checkpoint) if checkpoint is not None else None, address)
