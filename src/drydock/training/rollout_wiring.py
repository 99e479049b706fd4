"""What a configuration makes of the settings of rollouts and of their chat proxy, whatever samples."""

from pathlib import Path
from typing import Any

from drydock.harness.settings import AGENT_CLASS
from drydock.proxy.settings import ProxySettings
from drydock.rollout.settings import RolloutDeadlines, RolloutSettings
from drydock.training.config import RunConfig
from drydock.training.reward_config import reward_rule
from drydock.training.rollout_config import SamplingConfig
from drydock.training.sandbox_ready import environment_kwargs
from drydock.wire.rest import SamplingParams

CALL_GRACE_S = 30.0
"""How much longer than the chat proxy may take for a turn the agent waits, so that the proxy names the cause."""


def rollout_settings(config: RunConfig, state_dir: Path) -> RolloutSettings:
    """Settings of a run's rollouts. state_dir: where sandboxes keep their files."""
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
        environment_kwargs=environment_kwargs(config.sandbox, state_dir),
        pass_env=tuple(config.sandbox.pass_env),
        reward=reward_rule(config.reward),
        unsubmitted=config.generator.unsubmitted,
        deadlines=RolloutDeadlines(
            sandbox_start_s=limits.sandbox_start_s, agent_s=limits.agent_s, verifier_s=limits.verifier_s
        ),
    )


def proxy_settings(config: RunConfig, sampling: SamplingConfig, turns: Path | None) -> ProxySettings:
    """Settings of a chat proxy that samples with the given settings and logs turns in the folder `turns`, if any."""
    params = SamplingParams(
        max_tokens=sampling.max_generate_length,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        seed=config.trainer.seed if config.generator.seeded_sampling else None,
    )
    return ProxySettings(
        sampling=params,
        context_tokens=config.generator.max_input_length,
        max_new_tokens=sampling.max_generate_length,
        call_deadline_s=config.deadlines.sampling_call_s,
        admission_deadline_s=config.deadlines.sampling_call_s,
        max_concurrent_calls=config.generator.max_concurrent_calls,
        thinking=config.generator.thinking,
        turn_log=turns,
    )
