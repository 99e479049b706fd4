"""What a run would do, settled before anything is created: its tasks, its steps, and what to warn of."""

from dataclasses import dataclass

from drydock.amount import amount
from drydock.errors import ConfigError
from drydock.training.config import RunConfig
from drydock.training.task_set import Task, deal_batches, find_tasks, steps_available


@dataclass(frozen=True, slots=True)
class RunPlan:
    """batches: the tasks of each step, in order; warnings: sentences for the user."""

    train_tasks: tuple[Task, ...]
    eval_tasks: tuple[Task, ...]
    batches: tuple[tuple[Task, ...], ...]
    warnings: tuple[str, ...]

    @property
    def steps(self) -> int:
        return len(self.batches)


def plan_run(config: RunConfig) -> RunPlan:
    """Find and check the tasks and deal them out. Raises ConfigError when the run cannot work."""
    trainer = config.trainer
    warnings = _check_sampling(config)
    train = find_tasks(config.data.train, "data.train")
    if trainer.train_batch_size > len(train):
        raise ConfigError(
            f"trainer.train_batch_size is {trainer.train_batch_size}, but data.train holds only "
            f"{amount(len(train), 'task')}; lower it or add tasks"
        )
    evaluates = trainer.eval_before_train or trainer.eval_after_train or trainer.eval_interval > 0
    evaluation = find_tasks(config.data.eval, "data.eval") if config.data.eval else []
    if evaluates and not evaluation:
        warnings.append("data.eval is not set: evaluations use the training tasks, so they do not show generalisation")
        evaluation = train
    shared = {task.path for task in train} & {task.path for task in evaluation}
    if evaluates and config.data.eval and shared:
        what = (
            "data.eval and data.train are the same tasks"
            if len(shared) == len(evaluation)
            else (f"{len(shared)} of {len(evaluation)} tasks of data.eval are also in data.train")
        )
        warnings.append(f"{what}: their evaluation does not show generalisation")
    available = steps_available(len(train), trainer.train_batch_size, trainer.epochs)
    steps = trainer.max_training_steps or available
    if steps > available:
        warnings.append(
            f"trainer.max_training_steps is {steps}, but {amount(trainer.epochs, 'pass', 'passes')} over "
            f"{amount(len(train), 'task')} make {amount(available, 'step')}: the run ends "
            f"after {available}; raise trainer.epochs for more"
        )
        steps = available
    batches = deal_batches(
        train,
        batch_size=trainer.train_batch_size,
        epochs=trainer.epochs,
        shuffle=config.data.shuffle,
        seed=trainer.seed,
    )
    return RunPlan(
        tuple(train),
        tuple(evaluation),
        tuple(tuple(batch) for _, batch in zip(range(steps), batches, strict=False)),
        tuple(warnings),
    )


def _check_sampling(config: RunConfig) -> list[str]:
    """Raises ConfigError for sampling whose log-probs the trainer cannot recompute; warns where it only differs."""
    sampling = config.generator.sampling_params
    if sampling.temperature != 1:
        raise ConfigError(
            f"generator.sampling_params.temperature is {sampling.temperature:g}: the trainer computes log-probs at "
            "temperature 1, so every importance ratio would be wrong; set it to 1 (generator.eval_sampling_params may "
            "have another)"
        )
    if sampling.top_p < 1 or sampling.top_k > 0:
        return [
            "generator.sampling_params cuts the distribution (top_p, top_k), but log-probs are those before the cut: "
            "training is off-policy by that much"
        ]
    return []
