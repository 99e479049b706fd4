"""A rollout of four turns on two branches, recorded by a real proxy, as a trajectory."""

from pathlib import Path

from builders.proxy_calls import START, call_text, message_of, post, tool_result
from builders.scripted_sampler import scripted

from drydock.chat.parsers.hermes import HermesParser
from drydock.chat.template import ChatTemplate
from drydock.proxy import ChatProxy, ProxySettings
from drydock.rollout.outcome import Outcome
from drydock.rollout.trajectory import Trajectory

REPLIES = (f"Look.\n{call_text('ls é你')}", call_text("cat a"), "All done.", "Again.")


async def recorded_rollout(template: ChatTemplate, *, task: str = "List the files.") -> Trajectory:
    """Two calls and a closing text; then the first tool result is edited and the policy asked again."""
    sampler = scripted(template, REPLIES)
    async with ChatProxy(
        template, HermesParser(), sampler, ProxySettings(context_tokens=4000, max_new_tokens=400)
    ) as proxy:
        session = proxy.open_rollout("run-task-0")
        messages = [START[0], {"role": "user", "content": task}]
        for _ in range(2):
            message = message_of(await post(session, messages))
            messages += [message, tool_result(message, "out\x1b[2J")]
        await post(session, messages)
        edited = {**messages[3], "content": "other"}
        await post(session, [*messages[:3], edited])
        record = await session.close()
    return Trajectory(
        rollout_id="run-task-0",
        task="task",
        task_path="tasks/task",
        repetition=0,
        step=1,
        split="train",
        outcome=Outcome.GRADED,
        reward=1.0,
        rewards={"reward": 1.0},
        submitted=True,
        turns=4,
        advantage=0.5,
        record=record,
        timings={"agent_s": 1.5},
    )


def write_run(folder: Path, trajectory: Trajectory, model: Path) -> Path:
    """The folder of a run that holds the trajectory; returns the trajectory's file."""
    folder.mkdir()
    (folder / "config.toml").write_text(f'[trainer.policy.model]\npath = "{model}"\n', encoding="utf-8")
    return trajectory.write(folder / "trajectories" / "step_1" / "train")
