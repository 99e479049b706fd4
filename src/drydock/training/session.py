"""What a run's rollouts stand on: agent settings, sandbox, chat proxy, pools; built from the configuration.

This is where the configuration's names meet those of the packages below. Importing it loads the OpenHands SDK.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from drydock.chat.reply_reader import ReplyReader
from drydock.chat.template import ChatTemplate
from drydock.client import TrainingClient
from drydock.finding import Finding
from drydock.harness.prompt import system_prompt
from drydock.harness.skills import read_skills
from drydock.harness.tool_schemas import tool_schemas
from drydock.proxy.settings import ProxySettings
from drydock.report.progress import RunProgress
from drydock.rollout.runner import RolloutRunner
from drydock.rollout.settings import RolloutSettings
from drydock.rollout.trial_config import load_classes
from drydock.training.config import RunConfig
from drydock.training.demonstrations import read_demonstrations
from drydock.training.diagnosis import Diagnosis, recall
from drydock.training.loop import TrainingLoop
from drydock.training.plan import RunPlan
from drydock.training.policy_job import policy_job
from drydock.training.policy_versions import PolicyVersions
from drydock.training.preflight.first_task import check_first_task
from drydock.training.resume import ResumePoint
from drydock.training.rollout_batch import RolloutBatches
from drydock.training.rollout_config import SamplingConfig
from drydock.training.rollout_pools import PoolSetup, policy_reader, pools_here, pools_in_shards
from drydock.training.rollout_wiring import proxy_settings, rollout_settings
from drydock.training.run_folder import RunFolder
from drydock.training.spare_tasks import SpareTasks
from drydock.training.step_rollouts import StepCollector
from drydock.training.task_memory import TaskMemory


@dataclass(frozen=True, slots=True)
class RolloutSession:
    """Everything that all rollouts of a run have in common."""

    config: RunConfig
    plan: RunPlan
    template: ChatTemplate
    state_dir: Path

    @property
    def system_prompt(self) -> str:
        agent, turns = self.config.agent, self.config.generator.max_turns
        return system_prompt(agent.system_prompt_file, agent.tools, read_skills(agent.skills), max_turns=turns)

    @property
    def tools(self) -> list[dict[str, Any]]:
        return tool_schemas(self.config.agent.tools)

    async def preflight(self) -> Finding:
        """Try what would otherwise fail once the job exists; what was seen, a warning where doing nothing earns more
        than it should. Raises the cause.

        Agent, system prompt, tools and demonstrations are loaded; the first task is graded with an agent that does
        nothing.
        """
        load_classes(self.settings())
        _ = self.system_prompt, self.tools
        for stage in self.config.warm_start:
            read_demonstrations(stage.conversations)
        reader = self.reader
        assumed = "" if reader.format_known else ", as which a template is read that names no format"
        (graded,) = await check_first_task(self.plan.train_tasks[0].path, self.settings())
        return replace(graded, detail=f"{graded.detail}; tool calls are read as {reader.format}{assumed}")

    @property
    def reader(self) -> ReplyReader:
        """What reads the policy's turns: by the format that the configuration names, or else the template's."""
        return policy_reader(self.template, self.config.generator.tool_call_format)

    def settings(self) -> RolloutSettings:
        """Settings of the rollouts."""
        return rollout_settings(self.config, self.state_dir)

    def pool_setup(self, job_id: str, turns: Path) -> PoolSetup:
        """What the pools `train` and `eval` are made of; their chat proxies log turns in the folder `turns`."""
        generator = self.config.generator
        sampling = {
            "train": generator.sampling_params,
            "eval": generator.eval_sampling_params or generator.sampling_params,
        }
        return PoolSetup(
            model=self.config.trainer.policy.model.path,
            tool_call_format=generator.tool_call_format,
            rollouts=self.settings(),
            proxies={name: self.proxy_settings(params, turns) for name, params in sampling.items()},
            concurrency=generator.num_parallel_generation_workers,
            job_id=job_id,
            sampling_call_s=self.config.deadlines.sampling_call_s,
        )

    def pools(
        self, client: TrainingClient, job_id: str, folder: RunFolder, progress: RunProgress
    ) -> AbstractAsyncContextManager[Mapping[str, RolloutRunner]]:
        """The pools `train` and `eval`: in this process, or in shards where these are more rollouts than one takes."""
        setup = self.pool_setup(job_id, folder.turns)
        shards = setup.shard_count(self.config.generator.rollouts_per_process)
        if shards > 1:
            progress.waiting(f"{shards} rollout shards to start")
            return pools_in_shards(setup, shards, client, folder.shard_logs)
        return pools_here(setup, self.template, client)

    def proxy_settings(self, sampling: SamplingConfig, turns: Path) -> ProxySettings:
        """Settings of a chat proxy that samples with the given settings and logs turns in the folder `turns`."""
        return proxy_settings(self.config, sampling, turns)

    @asynccontextmanager
    async def training_loop(
        self, client: TrainingClient, folder: RunFolder, progress: RunProgress, resume: ResumePoint | None = None
    ) -> AsyncIterator[TrainingLoop]:
        """The loop over a new job, from `resume` on; the job is cancelled and the pools are closed on exit."""
        async with (
            policy_job(client, self.config, folder.job_id, progress.waiting, resume) as job,
            self.pools(client, job.job_id, folder, progress) as pools,
        ):
            batches = RolloutBatches(self.config, folder)
            memory = TaskMemory(self.config.trainer.task_strikes, folder.dropped_tasks)
            spare = SpareTasks(self.plan.train_tasks, self.config.trainer.seed)
            if resume is not None:
                resume.restore(spare, memory)
            collector = StepCollector(
                config=self.config,
                plan=self.plan,
                pool=pools["train"],
                batches=batches,
                memory=memory,
                spare=spare,
                progress=progress,
            )
            past = await asyncio.to_thread(recall, folder, resume.step if resume else 0, self.config.diagnosis)
            yield TrainingLoop(
                config=self.config,
                plan=self.plan,
                folder=folder,
                job=job,
                collector=collector,
                batches=batches,
                eval_pool=pools["eval"],
                template=self.template,
                system_prompt=self.system_prompt,
                tools=self.tools,
                progress=progress,
                diagnosis=Diagnosis(self.config.diagnosis, folder, progress.note, past),
                trained=resume.step if resume else 0,
                versions=PolicyVersions.at(resume.step, resume.version) if resume else PolicyVersions(),
            )
