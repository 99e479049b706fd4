import asyncio
from collections.abc import Sequence

import pytest
from builders.policy import SOLVE_HELLO, by_turn, tool_call
from builders.tasks import write_task

from drydock.errors import ConfigError, UserError
from drydock.rollout import Outcome, RolloutPool, Trajectory


async def test_rollouts_come_back_in_order_and_never_more_than_the_limit_run(
    tmp_path, serve, settings, spec_for, template
):
    inside = 0
    most = 0

    class Counting:
        inner = by_turn(template, SOLVE_HELLO)

        async def sample(self, prompt_ids: Sequence[int], params, *, routing_key: str):
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.02)
            inside -= 1
            return await self.inner.sample(prompt_ids, params, routing_key=routing_key)

    task = write_task(tmp_path / "hello")
    specs = [spec_for(task, repetition) for repetition in range(6)]
    done: list[Trajectory] = []
    async with serve(Counting()) as proxy:
        pool = RolloutPool(settings, proxy, concurrency=2)
        trajectories = await pool.run(specs, out_dir=tmp_path / "out", on_done=done.append)
    assert [trajectory.repetition for trajectory in trajectories] == list(range(6))
    assert {trajectory.outcome for trajectory in trajectories} == {Outcome.GRADED}
    assert sorted(trajectory.repetition for trajectory in done) == list(range(6))
    assert most <= 2
    assert len(list((tmp_path / "out").glob("hello_*.json"))) == 6
    assert len({call_id for trajectory in trajectories for call_id in call_ids(trajectory)}) == 6 * 4


def call_ids(trajectory: Trajectory) -> list[str]:
    messages = trajectory.record.messages
    return [call["id"] for message in messages for call in message.get("tool_calls") or []]


async def test_a_failing_rollout_does_not_take_the_others_down(tmp_path, serve, settings, spec_for):
    good, bad = write_task(tmp_path / "good"), write_task(tmp_path / "bad", test="true")
    async with serve() as proxy:
        pool = RolloutPool(settings, proxy, concurrency=4)
        trajectories = await pool.run([spec_for(good), spec_for(bad), spec_for(good, 1)])
    assert [trajectory.outcome for trajectory in trajectories] == [
        Outcome.GRADED,
        Outcome.VERIFIER_ERROR,
        Outcome.GRADED,
    ]


async def test_cancelling_the_pool_cancels_and_cleans_up_every_rollout(tmp_path, serve, settings, spec_for):
    task = write_task(tmp_path / "hello")
    async with serve([tool_call("terminal", command="sleep 600")]) as proxy:
        pool = RolloutPool(settings, proxy, concurrency=3)
        specs = [spec_for(task, repetition) for repetition in range(5)]
        running = asyncio.create_task(pool.run(specs, out_dir=tmp_path / "out"))
        async with asyncio.timeout(20):
            while len(list((tmp_path / "trials").glob("*"))) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert list((tmp_path / "trials").iterdir()) == []
        again = await pool.run([])
    assert again == []


async def test_an_error_in_a_callback_cancels_the_rest_and_surfaces(tmp_path, serve, settings, spec_for):
    def explode(_: Trajectory) -> None:
        raise RuntimeError("callback")

    task = write_task(tmp_path / "hello")
    async with serve() as proxy:
        pool = RolloutPool(settings, proxy, concurrency=1)
        with pytest.raises(BaseExceptionGroup) as raised:
            await pool.run([spec_for(task, repetition) for repetition in range(3)], on_done=explode)
    assert raised.group_contains(RuntimeError, match="callback")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agent": "drydock.harness.openhands:NoSuchAgent"}, "NoSuchAgent"),
        ({"environment": "no.such.module:Sandbox"}, "the sandbox no.such.module:Sandbox cannot be imported"),
        ({"agent_kwargs": {"tools": ["browser"]}}, "unknown tool 'browser'"),
        ({"agent_kwargs": {"max_truns": 3}}, "max_truns"),
        ({"agent_kwargs": {"system_prompt_file": "/no/such/prompt.txt"}}, "/no/such/prompt.txt"),
    ],
)
async def test_what_could_never_work_is_refused_before_any_rollout(serve, settings, changes, message):
    async with serve() as proxy:
        with pytest.raises((ConfigError, UserError), match=message):
            RolloutPool(settings.model_copy(update=changes), proxy, concurrency=1)
