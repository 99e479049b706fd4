"""The checks that `drydock eval` begins with: those of a run that concern its tasks, its agent and what samples."""

from functools import cached_property

from drydock.finding import Finding, Level
from drydock.rollout.trial_config import load_classes
from drydock.training.plan import RunPlan
from drydock.training.preflight.check import Check
from drydock.training.preflight.run_checks import RunChecks
from drydock.training.rollout_wiring import rollout_settings
from drydock.training.task_set import find_tasks


class EvalChecks(RunChecks):
    """The checks of one evaluation."""

    @cached_property
    def plan(self) -> RunPlan:
        """The tasks of `data.eval`, or else of `data.train` with a warning; no steps."""
        data = self.config.data
        sources, setting = (data.eval, "data.eval") if data.eval else (data.train, "data.train")
        tasks = tuple(find_tasks(sources, setting))
        warnings = () if data.eval else ("data.eval is not set: the training tasks are evaluated",)
        return RunPlan(tasks, tasks, (), warnings)

    def cheap(self) -> list[Check]:
        """Of an evaluation with a model on the service."""
        return [check for check in super().cheap() if check.name not in ("settings", "warm start")]

    def without_model(self) -> list[Check]:
        """Of an evaluation of an endpoint, of whose model nothing is known."""
        return [
            check for check in self.cheap() if check.area not in ("model", "service") and "prompts" not in check.name
        ]

    def _agent(self) -> list[Finding]:
        load_classes(rollout_settings(self.config, self.state_dir))
        return [Finding("agent", Level.PASS, self.config.agent.import_path)]

    @property
    def gpus_wanted(self) -> int:
        return self.config.service.n_gpus_sampling
