"""How a run's rollouts are divided among processes, and what these are told."""

from pathlib import Path

from builders.chat_families import FAMILIES
from hypothesis import given
from hypothesis import strategies as st

from drydock.client import TrainingClient
from drydock.training.config_file import load_run_config
from drydock.training.plan import RunPlan
from drydock.training.rollout_pools import PoolSetup, ShardSetup
from drydock.training.session import RolloutSession


def setup_of(folder: Path, *overrides: str) -> PoolSetup:
    config = load_run_config(None, ["data.train=tasks", "trainer.policy.model.path=m", *overrides])
    session = RolloutSession(config, RunPlan((), (), (), ()), FAMILIES["qwen3"](folder), folder)
    return session.pool_setup("job-1", folder / "turns")


def test_more_rollouts_than_a_process_takes_are_spread_evenly(tmp_path: Path) -> None:
    setup = setup_of(tmp_path, "generator.num_parallel_generation_workers=130", "generator.max_concurrent_calls=100")
    assert [setup.shard_count(limit) for limit in (130, 129, 65, 64)] == [1, 2, 2, 3]
    parts = setup.split(3)
    assert [part.concurrency for part in parts] == [44, 43, 43]
    assert [part.proxies["train"].max_concurrent_calls for part in parts] == [34, 33, 33]
    assert {part.model_copy(update={"concurrency": 1, "proxies": {}}).model_dump_json() for part in parts} == {
        setup.model_copy(update={"concurrency": 1, "proxies": {}}).model_dump_json()
    }


def test_no_process_is_without_a_call_at_the_sampler(tmp_path: Path) -> None:
    setup = setup_of(tmp_path, "generator.num_parallel_generation_workers=64", "generator.max_concurrent_calls=2")
    assert setup.shard_count(1) == 2


def test_evaluation_samples_as_it_is_told(tmp_path: Path) -> None:
    setup = setup_of(tmp_path, "generator.eval_sampling_params.temperature=0")
    sampling = {name: settings.sampling.temperature for name, settings in setup.proxies.items()}
    assert sampling == {"train": 1.0, "eval": 0.0}


@given(
    token=st.none() | st.from_regex(r"secret-[!-~]{0,30}", fullmatch=True),
    hosted=st.booleans(),
    schema=st.text(max_size=10),
)
def test_a_shard_is_told_everything_and_shows_no_token(token: str | None, hosted: bool, schema: str) -> None:
    client = TrainingClient("http://127.0.0.1:1", token=token, schema=schema, hosted=hosted)
    pools = PoolSetup.model_validate(
        {
            "model": "m",
            "tool_call_format": None,
            "rollouts": {"agent_kwargs": {"tools": ["terminal"], "max_seconds": 1.5}},
            "proxies": {"train": {"context_tokens": 100, "max_new_tokens": 10, "turn_log": "/turns"}},
            "concurrency": 3,
            "job_id": "j",
            "sampling_call_s": 60.0,
        }
    )
    told = ShardSetup(pools=pools, service=client.access)
    heard = ShardSetup.model_validate_json(told.model_dump_json())
    assert heard == told
    assert TrainingClient.of(heard.service).access == client.access
    assert "secret-" not in repr(heard) + repr(client)
