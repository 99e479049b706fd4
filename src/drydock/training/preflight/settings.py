"""Settings that are valid each for itself and cannot work together, or do not do what they seem to.

Pure: nothing is read but the configuration and the number of steps that its task set gives.
"""

from collections.abc import Iterator

from drydock.finding import Finding, Level
from drydock.training.config import RunConfig


def check_settings(config: RunConfig, steps: int | None) -> list[Finding]:
    """One finding for each setting that cannot work or has no effect; one that passes when there is none.

    steps: None where the task set cannot be used; what depends on it is then left out.
    """
    found = [*_impossible(config), *_evaluations(config), *(_never_reached(config, steps) if steps else ())]
    return found or [Finding("combination", Level.PASS, "the settings fit each other")]


def _impossible(config: RunConfig) -> Iterator[Finding]:
    generator, agent = config.generator, config.agent
    optimizer = config.trainer.policy.optimizer_config
    if generator.n_samples_per_prompt < 2:
        yield _fail(
            "generator.n_samples_per_prompt",
            "generator.n_samples_per_prompt is 1: a rollout's advantage is its difference from its group's others, so "
            "a group of one trains nothing",
            "set it to 2 or more, 8 is usual",
        )
    if agent.max_sampled_tokens is not None and agent.max_sampled_tokens < generator.max_turns:
        yield _fail(
            "generator.max_turns",
            f"generator.max_turns is {generator.max_turns}, but agent.max_sampled_tokens is "
            f"{agent.max_sampled_tokens}: a turn takes at least one token",
            "lower the turns or raise the tokens",
        )
    for place, beta in enumerate(optimizer.adam_betas):
        if not 0 <= beta < 1:
            yield _fail(
                "trainer.policy.optimizer_config.adam_betas",
                f"trainer.policy.optimizer_config.adam_betas.{place} is {beta:g}, which is no decay rate",
                "give two numbers from 0 to below 1, such as [0.9, 0.999]",
            )


def _never_reached(config: RunConfig, steps: int) -> Iterator[Finding]:
    trainer = config.trainer
    warmup = trainer.policy.optimizer_config.num_warmup_steps
    for name, interval, instead in (
        ("trainer.eval_interval", trainer.eval_interval, "trainer.eval_after_train=true"),
        ("trainer.ckpt_interval", trainer.ckpt_interval, "trainer.save_final_checkpoint=true"),
    ):
        if interval > steps:
            yield _warn(
                name, f"{name} is {interval}, but the run has {steps} steps: it never happens", f"lower it or {instead}"
            )
    if warmup > steps:
        yield _warn(
            "trainer.policy.optimizer_config.num_warmup_steps",
            f"the learning rate rises for {warmup} steps, but the run has {steps}: it never reaches "
            f"{trainer.policy.optimizer_config.lr:g}",
            "lower num_warmup_steps or train longer",
        )


def _evaluations(config: RunConfig) -> Iterator[Finding]:
    trainer, generator = config.trainer, config.generator
    evaluates = trainer.eval_before_train or trainer.eval_after_train or trainer.eval_interval
    if config.data.eval and not evaluates:
        yield _warn(
            "data.eval",
            "data.eval names tasks, but no evaluation is asked for",
            "trainer.eval_before_train=true, trainer.eval_after_train=true or trainer.eval_interval=N",
        )
    sampling = generator.eval_sampling_params or generator.sampling_params
    if evaluates and sampling.temperature == 0 and generator.eval_n_samples_per_prompt > 1:
        yield _warn(
            "generator.eval_n_samples_per_prompt",
            f"each task is evaluated {generator.eval_n_samples_per_prompt} times with greedy sampling, which gives the "
            "same rollout each time",
            "set it to 1 or generator.eval_sampling_params.temperature above 0",
        )


def _fail(name: str, detail: str, remedy: str) -> Finding:
    return Finding(name, Level.FAIL, detail, remedy)


def _warn(name: str, detail: str, remedy: str) -> Finding:
    return Finding(name, Level.WARN, detail, remedy)
