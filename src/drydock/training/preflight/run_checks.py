"""All checks of a run, by area: what `drydock doctor run.toml` shows and what every `drydock train` begins with.

`cheap` reads files and asks the service; it creates nothing. `first_task` runs a trial, `live_job` a job.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from drydock.chat.reply_reader import reader_for, reader_named
from drydock.errors import ConfigError
from drydock.finding import Finding, Level
from drydock.own_directory import own_directory
from drydock.report.progress import RunProgress
from drydock.rollout.trial_config import load_classes
from drydock.training.demonstrations import read_demonstrations
from drydock.training.preflight import model, prompts, service
from drydock.training.preflight.check import Check, in_thread
from drydock.training.preflight.first_task import check_first_task
from drydock.training.preflight.live_job import check_live_job
from drydock.training.preflight.machine_checks import machine_checks
from drydock.training.preflight.run_parts import RunParts
from drydock.training.preflight.settings import check_settings
from drydock.training.preflight.tasks import check_task_environments, check_task_files
from drydock.training.run_folder import RunFolder
from drydock.training.run_service import run_service, service_client
from drydock.training.sandbox_ready import check_sandbox
from drydock.training.task_set import find_tasks

_FILES_S = 600.0
_SERVICE_S = 90.0
_MACHINE_S = 60.0
"""Limits of checks that read files, ask the service, look at the machine."""

_TASK_REMEDY = "mend the task or leave it out, see docs/tasks.md"
_MODEL_REMEDY = "give a whole Hugging Face model with tokenizer and chat template, see docs/chat-templates.md"
_PROMPT_REMEDY = "mend the system prompt, the instruction or the chat template"

LOCAL_WEIGHTS_BYTES = 1 << 30
"""Larger models make a job on this machine's processors too slow to be part of a check that nobody asked for."""


class RunChecks(RunParts):
    """The checks of one run."""

    def cheap(self) -> list[Check]:
        """What every run begins with, but for the sandbox; nothing is created."""
        return [
            self._files("settings", "settings", "the settings to be checked", "change the setting", self._settings),
            self._files("tasks", "files", "the tasks to be read", _TASK_REMEDY, self._task_files),
            self._files(
                "tasks", "environments", "the tasks' environments to be read", _TASK_REMEDY, self._environments
            ),
            self._files("model", "model", "the model's files to be read", _MODEL_REMEDY, self._model),
            self._files("agent", "agent", "the agent to be loaded", "see docs/agent.md", self._agent),
            self._files("agent", "first prompts", "the first prompts to be tokenized", _PROMPT_REMEDY, self._prompts),
            self._files(
                "agent", "warm start", "the demonstrations to be read", "see docs/sft.md", self._demonstrations
            ),
            *machine_checks(self.state_dir, self.folder, self.config.generator.num_parallel_generation_workers),
            Check(
                "service",
                "reachable",
                "the training service to answer",
                _SERVICE_S,
                "check service.base_url or service.host and that the service runs",
                self._service,
            ),
        ]

    def sandbox(self, note: Callable[[str], None]) -> Check:
        """Whether sandboxes can work; removes what killed drivers left."""

        def find() -> list[Finding]:
            check_sandbox(self.config.sandbox, self.state_dir, note)
            return [Finding("sandbox", Level.PASS, f"sandbox {self.config.sandbox.environment} can work here")]

        return Check(
            "sandbox",
            "sandbox",
            "the sandbox to be checked",
            _MACHINE_S,
            "see `drydock doctor sandbox`",
            in_thread(find),
        )

    def first_task(self) -> Check:
        """A trial of the first task with an agent that does nothing."""

        async def find() -> list[Finding]:
            return await check_first_task(self.plan.train_tasks[0].path, self.session.settings())

        return Check(
            "first-task",
            "graded",
            "the first task to be graded by an agent that does nothing",
            self.config.deadlines.preflight_s,
            "mend the task or the sandbox, or raise deadlines.preflight_s",
            find,
        )

    def live_job(self, progress: RunProgress) -> Check:
        """A small job on the run's service, which is started for it where the run names none."""
        limits = self.config.deadlines
        steps_s = 2 * limits.sampling_call_s + limits.forward_backward_s + limits.step_s + limits.weight_sync_s
        return Check(
            "live-job",
            "job",
            "a small job to sample, to train one step and to be cancelled",
            limits.service_start_s + limits.job_running_s + steps_s + limits.shutdown_s,
            "read the service's log; raise the deadline that is named",
            lambda: self._live_job(progress),
        )

    def live_job_is_cheap(self) -> bool:
        """Whether the job would run on this machine's processors with a small local model."""
        from drydock.service.gpus import gpu_types

        folder = Path(self.config.trainer.policy.model.path)
        weights = sum(file.stat().st_size for file in folder.glob("*.safetensors")) if folder.is_dir() else 0
        return self.config.service.address is None and 0 < weights < LOCAL_WEIGHTS_BYTES and not gpu_types()

    def _settings(self) -> list[Finding]:
        try:
            plan = self.plan
        except ConfigError as error:
            failed = [Finding("plan", Level.FAIL, text, "change the setting") for text in self._plan_errors(error)]
            return [*failed, *(one for one in check_settings(self.config, None) if one.level is not Level.PASS)]
        remedy = "change the setting that is named, or go on if it is meant"
        warnings = [Finding("plan", Level.WARN, warning, remedy) for warning in plan.warnings]
        return [*check_settings(self.config, plan.steps), *warnings]

    def _task_files(self) -> list[Finding]:
        return check_task_files(self.tasks)

    def _plan_errors(self, first: ConfigError) -> list[str]:
        """What is wrong with the task sets; the plan itself stops at the first."""
        data = self.config.data
        found = [str(first)]
        for sources, setting in ((data.train, "data.train"), (data.eval, "data.eval")):
            try:
                find_tasks(sources, setting)
            except ConfigError as error:
                found.append(str(error))
        return list(dict.fromkeys(found))

    def _environments(self) -> list[Finding]:
        return check_task_environments(self.config.sandbox, [task.path for task in self.tasks])

    def _model(self) -> list[Finding]:
        template = self.template
        name = self.config.generator.tool_call_format
        found = model.check_template(template, reader_named(name, template) if name else reader_for(template))
        folder = Path(self.config.trainer.policy.model.path)
        if folder.is_dir():
            found += [*model.check_vocabulary(folder, template), *model.check_weights(folder)]
        return found

    def _agent(self) -> list[Finding]:
        load_classes(self.session.settings())
        tools = [tool["function"]["name"] for tool in self.session.tools] if self.has_default_agent else []
        shown = f" with {', '.join(tools)}" if tools else ""
        name = self.config.agent.import_path.rpartition(":")[2]
        ignored = ", ".join(f"agent.{key}" for key in self.config.agent.without_effect)
        if ignored:
            detail = f"{name} does not see {ignored}"
            return [Finding("agent", Level.WARN, detail, "leave them out; other agents than the default take kwargs")]
        return [Finding("agent", Level.PASS, f"{name}{shown}")]

    def _demonstrations(self) -> list[Finding]:
        stages = self.config.warm_start
        count = sum(len(read_demonstrations(stage.conversations)) for stage in stages)
        return [Finding("warm start", Level.PASS, f"{count} conversations in {len(stages)} stages")] if stages else []

    def _prompts(self) -> list[Finding]:
        if not self.has_default_agent:
            return [Finding("first prompts", Level.PASS, "not known of an agent of your own")]
        session = self.session
        return prompts.check_prompts(self.config, self.tasks, self.template, session.system_prompt, session.tools)

    @property
    def gpus_wanted(self) -> int:
        """GPUs (or CPU slots) of the run's job."""
        return self.config.service.n_gpus_training + self.config.service.n_gpus_sampling

    async def _service(self) -> list[Finding]:
        settings = self.config.service
        comment = settings.job_comment or self.config.trainer.run_name
        wanted = service.Wanted(self.gpus_wanted, comment)
        if settings.address is None:
            return await asyncio.to_thread(service.check_own_service, wanted)
        has_token = self.secrets.of(settings) is not None
        async with service_client(settings, self.secrets) as client:
            return await service.check_service(client, settings.address, has_token=has_token, wanted=wanted)

    async def _live_job(self, progress: RunProgress) -> list[Finding]:
        session = self.session
        task = self.plan.train_tasks[0]
        prompt = prompts.first_prompt_ids(task.path, self.template, session.system_prompt, session.tools)
        folder = RunFolder(own_directory("doctor"), "doctor")
        start_s = self.config.deadlines.service_start_s
        async with run_service(self.config.service, self.secrets, folder, start_s, progress) as client:
            return await check_live_job(client, self.config, prompt)

    def _files(self, area: str, name: str, waiting_for: str, remedy: str, find: Callable[[], list[Finding]]) -> Check:
        return Check(area, name, waiting_for, _FILES_S, remedy, in_thread(find))
