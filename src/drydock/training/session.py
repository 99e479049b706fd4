"""What a run's rollouts stand on: agent settings, sandbox, chat proxy, pools; built from the configuration.

This is where the configuration's names meet those of the packages below. Importing it loads the OpenHands SDK.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drydock.chat.reply_reader import ReplyReader, reader_for, reader_named
from drydock.chat.template import ChatTemplate
from drydock.client import TrainingClient
from drydock.harness.prompt import system_prompt
from drydock.harness.settings import AGENT_CLASS
from drydock.harness.skills import read_skills
from drydock.harness.tool_schemas import tool_schemas
from drydock.proxy.server import ChatProxy, ProxySettings
from drydock.proxy.service_sampler import ServiceSampler
from drydock.report.progress import RunProgress
from drydock.rollout.pool import RolloutPool
from drydock.rollout.preflight import preflight_task
from drydock.rollout.settings import RolloutDeadlines, RolloutSettings
from drydock.rollout.trial_config import load_classes
from drydock.training.config import RunConfig
from drydock.training.demonstrations import read_demonstrations
from drydock.training.loop import TrainingLoop
from drydock.training.plan import RunPlan
from drydock.training.policy_job import policy_job
from drydock.training.reward_config import reward_rule
from drydock.training.rollout_config import SamplingConfig
from drydock.training.run_folder import RunFolder
from drydock.training.sandbox_ready import environment_kwargs
from drydock.training.task_memory import TaskMemory
from drydock.wire.rest import SamplingParams

CALL_GRACE_S = 30.0
"""How much longer than the chat proxy may take for a turn the agent waits, so that the proxy names the cause."""


@dataclass(frozen=True, slots=True)
class RolloutSession:
    """Everything that all rollouts of a run have in common."""

    config: RunConfig
    plan: RunPlan
    template: ChatTemplate
    state_dir: Path

    @property
    def system_prompt(self) -> str:
        agent = self.config.agent
        return system_prompt(agent.system_prompt_file, agent.tools, read_skills(agent.skills))

    @property
    def tools(self) -> list[dict[str, Any]]:
        return tool_schemas(self.config.agent.tools)

    async def preflight(self) -> str:
        """Try what would otherwise fail once the job exists; a sentence on what was seen. Raises the cause.

        Agent, system prompt, tools and demonstrations are loaded; the first task is graded with an agent that does
        nothing.
        """
        load_classes(self.settings())
        _ = self.system_prompt, self.tools
        for stage in self.config.warm_start:
            read_demonstrations(stage.conversations)
        report = await preflight_task(self.plan.train_tasks[0].path, self.settings())
        seconds = sum(report.timings.values())
        reader = self.reader
        assumed = "" if reader.format_known else ", as which a template is read that names no format"
        return (
            f"task {report.task} works: doing nothing earns {report.reward:g} ({seconds:.1f} s); "
            f"tool calls are read as {reader.format}{assumed}"
        )

    @property
    def reader(self) -> ReplyReader:
        """What reads the policy's turns: by the format that the configuration names, or else the template's."""
        name = self.config.generator.tool_call_format
        return reader_for(self.template) if name is None else reader_named(name, self.template)

    def settings(self) -> RolloutSettings:
        """Settings of the rollouts."""
        config = self.config
        agent = config.agent
        agent_kwargs: dict[str, Any] = {
            "tools": agent.tools,
            "system_prompt_file": str(agent.system_prompt_file) if agent.system_prompt_file else None,
            "max_turns": config.generator.max_turns,
            "command_timeout_s": agent.command_timeout_s,
            "max_output_chars": agent.max_output_chars,
            "call_timeout_s": 2 * config.deadlines.sampling_call_s + CALL_GRACE_S,
            "transport": agent.transport,
            "skills": [str(skill) for skill in agent.skills],
            "max_sampled_tokens": agent.max_sampled_tokens,
            "max_seconds": agent.max_seconds,
            "condense_after_events": agent.condense_after_events,
        }
        limits = config.deadlines
        return RolloutSettings(
            agent=agent.import_path,
            agent_kwargs=agent_kwargs if agent.import_path == AGENT_CLASS else dict(agent.kwargs),
            environment=config.sandbox.environment,
            environment_kwargs=environment_kwargs(config.sandbox, self.state_dir),
            pass_env=tuple(config.sandbox.pass_env),
            reward=reward_rule(config.reward),
            unsubmitted=config.generator.unsubmitted,
            deadlines=RolloutDeadlines(
                sandbox_start_s=limits.sandbox_start_s, agent_s=limits.agent_s, verifier_s=limits.verifier_s
            ),
        )

    def proxy(self, sampler: ServiceSampler, sampling: SamplingConfig, turns: Path) -> ChatProxy:
        """A chat proxy that samples with the given settings and logs turns in the folder `turns`."""
        return ChatProxy(self.template, self.reader, sampler, self.proxy_settings(sampling, turns))

    def proxy_settings(self, sampling: SamplingConfig, turns: Path) -> ProxySettings:
        """Settings of such a proxy."""
        params = SamplingParams(
            max_tokens=sampling.max_generate_length,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
        )
        return ProxySettings(
            sampling=params,
            context_tokens=self.config.generator.max_input_length,
            max_new_tokens=sampling.max_generate_length,
            call_deadline_s=self.config.deadlines.sampling_call_s,
            admission_deadline_s=self.config.deadlines.sampling_call_s,
            max_concurrent_calls=self.config.generator.max_concurrent_calls,
            thinking=self.config.generator.thinking,
            turn_log=turns,
        )

    @asynccontextmanager
    async def training_loop(
        self, client: TrainingClient, folder: RunFolder, progress: RunProgress
    ) -> AsyncIterator[TrainingLoop]:
        """The loop over a new job; the job is cancelled and the proxies are closed on exit."""
        generator = self.config.generator
        workers = generator.num_parallel_generation_workers
        async with policy_job(client, self.config, folder.job_id, progress.waiting) as job:
            sampler = ServiceSampler(client, job.job_id, deadline_s=self.config.deadlines.sampling_call_s)
            eval_sampling = generator.eval_sampling_params or generator.sampling_params
            async with (
                self.proxy(sampler, generator.sampling_params, folder.turns) as proxy,
                self.proxy(sampler, eval_sampling, folder.turns) as eval_proxy,
            ):
                yield TrainingLoop(
                    config=self.config,
                    plan=self.plan,
                    folder=folder,
                    job=job,
                    pool=RolloutPool(self.settings(), proxy, workers),
                    eval_pool=RolloutPool(self.settings(), eval_proxy, workers),
                    template=self.template,
                    system_prompt=self.system_prompt,
                    tools=self.tools,
                    progress=progress,
                    memory=TaskMemory(self.config.trainer.task_strikes, folder.dropped_tasks),
                )
