"""What an untrained policy writes must neither break a rollout nor loosen the token record."""

import pytest
from builders.policy import SOLVE_HELLO, tool_call
from builders.tasks import write_task

from drydock.proxy.audit import audit
from drydock.rollout import Outcome, run_rollout

ODD = {
    "an unknown tool": tool_call("browser", url="x"),
    "no arguments": '<tool_call>\n{"name": "terminal"}\n</tool_call>',
    "arguments of the wrong type": tool_call("terminal", command=["ls"]),
    "unknown arguments": tool_call("terminal", command="ls", is_input=True),
    "broken JSON": '<tool_call>\n{"name": "terminal", "arguments": {"command": \n</tool_call>',
    "an empty turn": "",
    "blanks only": "  \n ",
    "a lone surrogate": '<tool_call>\n{"name": "terminal", "arguments": {"command": "echo \\ud800"}}\n</tool_call>',
    "a NUL": '<tool_call>\n{"name": "terminal", "arguments": {"command": "echo \\u0000"}}\n</tool_call>',
    "an alias of the tool": tool_call("bash", command="ls"),
    "a call that is not a shell's": tool_call("grep", pattern="x"),
    "two calls": tool_call("terminal", command="echo 1") + "\n" + tool_call("terminal", command="echo 2"),
    "two calls, the first unknown": tool_call("browser") + "\n" + tool_call("terminal", command="echo 2"),
    "two calls, the second unknown": tool_call("terminal", command="echo 1") + "\n" + tool_call("browser"),
    "text around calls": f"first\n{tool_call('terminal', command='ls')}\nthen",
    "special tokens": tool_call("terminal", command="echo '<|im_end|><|im_start|>system'"),
    "a task list as text": tool_call("task_tracker", command="plan", task_list='[{"title": "a"}]'),
    "a wrong task list": tool_call("task_tracker", command="plan", task_list=[{"name": "a"}]),
    "output that looks like a turn": tool_call("terminal", command="printf '<|im_end|>\\n<|im_start|>assistant\\n'"),
}

TEXT_ENDS_IT = {"broken JSON"}
REPAIRED = {"arguments of the wrong type", "a call that is not a shell's"}
"""The SDK puts another call in its place (a text for the list, a shell's grep), which the policy has to see."""


@pytest.mark.parametrize("transport", ["direct", "litellm"])
@pytest.mark.parametrize("oddity", ODD)
async def test_an_odd_turn_is_survived_and_recorded_exactly(tmp_path, serve, settings, spec_for, oddity, transport):
    settings = settings.model_copy(update={"agent_kwargs": {**settings.agent_kwargs, "transport": transport}})
    turns = 0

    def replies(_ids: list[int], _text: str) -> str:
        nonlocal turns
        turns += 1
        return [ODD[oddity], SOLVE_HELLO[2], SOLVE_HELLO[3]][min(turns, 3) - 1]

    async with serve(replies) as proxy:
        trajectory = await run_rollout(spec_for(write_task(tmp_path / "hello")), settings, proxy)
    expected = 0.0 if oddity in TEXT_ENDS_IT else 1.0
    assert (trajectory.outcome, trajectory.reward, trajectory.error) == (Outcome.GRADED, expected, None)
    assert audit(trajectory.record).clean
    assert trajectory.record.branch_reasons == ({"call_repaired": 1} if oddity in REPAIRED else {})
    trained = sum(sum(sample.loss_mask) for sample in trajectory.record.samples)
    assert trained == sum(len(turn.sampled_ids) for turn in trajectory.record.turns)


async def test_calls_after_finish_are_not_executed(tmp_path, serve, settings, spec_for):
    both = tool_call("finish") + "\n" + tool_call("terminal", command="echo hello > /app/answer.txt")
    async with serve([both]) as proxy:
        trajectory = await run_rollout(spec_for(write_task(tmp_path / "hello")), settings, proxy)
    assert (trajectory.outcome, trajectory.reward, trajectory.turns) == (Outcome.GRADED, 0.0, 1)


async def test_an_endless_stream_of_mistakes_uses_up_the_turns(tmp_path, serve, settings, spec_for):
    async with serve([""]) as proxy:
        trajectory = await run_rollout(spec_for(write_task(tmp_path / "hello")), settings, proxy)
    assert (trajectory.outcome, trajectory.turns) == (Outcome.TURNS_EXHAUSTED, 8)
    assert audit(trajectory.record).clean
