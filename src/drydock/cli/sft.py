"""`drydock sft`: supervised fine-tuning on conversations."""

import typer

from drydock.cli.run_arguments import ConfigArgument, Overrides, read_run


def sft(config: ConfigArgument, overrides: Overrides = None) -> None:
    """Fine-tune a model on conversations, loss on the assistant's tokens."""
    from drydock.report.progress import RunProgress
    from drydock.training.sft.config import SftConfig
    from drydock.training.sft.launch import launch_sft

    run, secrets = read_run(SftConfig, config, overrides)
    raise typer.Exit(launch_sft(run, secrets, RunProgress()))
