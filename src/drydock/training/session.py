"""What a run's rollouts stand on: agent settings, sandbox, chat proxy, pools; built from the configuration.

This is where the configuration's names meet those of the packages below. Importing it loads the OpenHands SDK.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drydock.chat.parsers.hermes import HermesParser
from drydock.chat.template import ChatTemplate
from drydock.client import TrainingClient
from drydock.errors import SandboxUnavailable
from drydock.harness.prompt import system_prompt
from drydock.harness.tool_schemas import tool_schemas
from drydock.proxy.server import ChatProxy, ProxySettings
from drydock.proxy.service_sampler import ServiceSampler
from drydock.report.progress import RunProgress
from drydock.rollout.pool import RolloutPool
from drydock.rollout.preflight import preflight_task
from drydock.rollout.settings import SANDBOXES, RolloutDeadlines, RolloutSettings
from drydock.rollout.trial_config import load_classes
from drydock.sandbox.locations import sandboxes_in
from drydock.sandbox.reaper import reap
from drydock.sandbox.requirements import check_local
from drydock.training.config import RunConfig, SamplingConfig
from drydock.training.demonstrations import read_demonstrations
from drydock.training.loop import TrainingLoop
from drydock.training.plan import RunPlan
from drydock.training.policy_job import policy_job
from drydock.training.run_folder import RunFolder
from drydock.wire.rest import SamplingParams

CALL_GRACE_S = 30.0
"""How much longer than the chat proxy the agent waits for a turn, so that it is the proxy that names the cause."""


def check_sandbox(config: RunConfig, state_dir: Path, progress: RunProgress) -> None:
    """Remove what a killed driver left. Raises SandboxUnavailable, naming every remedy, when sandboxes cannot work."""
    if config.sandbox.environment not in SANDBOXES:
        return
    cache_dir = config.sandbox.kwargs.get("cache_dir")
    requirements = check_local(Path(str(cache_dir)) if cache_dir else None)
    missing = [requirement for requirement in requirements if not requirement.ok]
    if missing and config.sandbox.environment == "local":
        reasons = "; ".join(
            f"{requirement.name}: {requirement.detail}, remedy: {requirement.remedy}" for requirement in missing
        )
        raise SandboxUnavailable(
            f"the local sandbox cannot work on this machine: {reasons}. For tasks that you trust, run them on this "
            "machine itself: HARBOR_ALLOW_HOST_EXEC=1 and sandbox.environment=host"
        )
    for leftover in reap(sandboxes_in(state_dir)):
        progress.note(f"removed what a killed run left: {leftover}")


@dataclass(frozen=True, slots=True)
class RolloutSession:
    """Everything that all rollouts of a run have in common."""

    config: RunConfig
    plan: RunPlan
    template: ChatTemplate
    state_dir: Path

    @property
    def system_prompt(self) -> str:
        return system_prompt(self.config.agent.system_prompt_file, tuple(self.config.agent.tools))

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
        return f"task {report.task} works: doing nothing earns {report.reward:g} ({seconds:.1f} s)"

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
            "call_timeout_s": config.deadlines.sampling_call_s + CALL_GRACE_S,
            "transport": agent.transport,
        }
        environment_kwargs = dict(config.sandbox.kwargs)
        if config.sandbox.environment in SANDBOXES:
            environment_kwargs.setdefault("state_dir", str(sandboxes_in(self.state_dir)))
        limits = config.deadlines
        return RolloutSettings(
            agent=agent.import_path,
            agent_kwargs=agent_kwargs,
            environment=config.sandbox.environment,
            environment_kwargs=environment_kwargs,
            pass_env=tuple(config.sandbox.pass_env),
            unsubmitted=config.generator.unsubmitted,
            deadlines=RolloutDeadlines(
                sandbox_start_s=limits.sandbox_start_s, agent_s=limits.agent_s, verifier_s=limits.verifier_s
            ),
        )

    def proxy(self, sampler: ServiceSampler, sampling: SamplingConfig, turns: Path) -> ChatProxy:
        """A chat proxy that samples with the given settings and logs turns in the folder `turns`."""
        params = SamplingParams(
            max_tokens=sampling.max_generate_length,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
        )
        settings = ProxySettings(
            sampling=params,
            context_tokens=self.config.generator.max_input_length,
            max_new_tokens=sampling.max_generate_length,
            call_deadline_s=self.config.deadlines.sampling_call_s,
            turn_log=turns,
        )
        return ChatProxy(self.template, HermesParser(), sampler, settings)

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
                )
