"""What the checks of a run look at, each part made once, by the first check that needs it."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from drydock.chat.template import ChatTemplate
from drydock.harness.settings import AGENT_CLASS
from drydock.training.config import RunConfig
from drydock.training.model_folder import check_model_folder
from drydock.training.plan import RunPlan, plan_run
from drydock.training.run_folder import RunFolder
from drydock.training.run_service import Secrets
from drydock.training.session import RolloutSession
from drydock.training.task_set import Task


@dataclass(frozen=True)
class RunParts:
    """One run: what it was told, and its plan, template and session, which raise where they cannot be made."""

    config: RunConfig
    secrets: Secrets
    folder: RunFolder
    state_dir: Path

    @cached_property
    def plan(self) -> RunPlan:
        """Raises ConfigError when the task set cannot be used."""
        return plan_run(self.config)

    @cached_property
    def template(self) -> ChatTemplate:
        """Raises ConfigError, UserError or TemplateError when model or template cannot be used."""
        path = self.config.trainer.policy.model.path
        check_model_folder(path, self.config.generator.max_input_length, "generator.max_input_length")
        return ChatTemplate.load(path)

    @cached_property
    def session(self) -> RolloutSession:
        """Raises what plan and template raise."""
        return RolloutSession(self.config, self.plan, self.template, self.state_dir)

    @property
    def tasks(self) -> list[Task]:
        """Every task of the run, each directory once, those first that its steps are dealt."""
        plan = self.plan
        dealt = [task for batch in plan.batches for task in batch]
        return list({task.path: task for task in (*dealt, *plan.eval_tasks, *plan.train_tasks)}.values())

    @property
    def has_default_agent(self) -> bool:
        """Whether the agent is the one whose prompts are known before it runs."""
        return self.config.agent.import_path == AGENT_CLASS
