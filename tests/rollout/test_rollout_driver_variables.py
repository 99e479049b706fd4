"""A task reads the driver's environment variables that the run allows, and no others."""

import logging

import pytest
from builders.tasks import write_task

from drydock.errors import Blame, TaskError
from drydock.rollout import Outcome, preflight_task, run_rollout
from drydock.rollout.driver_variables import refuse_unless_allowed, requested_variables
from drydock.rollout.pool import RolloutPool
from drydock.rollout.prepared_task import prepared_task

ASKS = 'env = {{ SEEN = "{value}" }}\n'
STEP = '[[steps]]\nname = "one"\n'
HEADER = (
    '[[environment.mcp_servers]]\nname = "m"\nurl = "http://x"\nheaders = { Authorization = "Bearer ${SENTINEL}" }\n'
)


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTINEL", "driver-secret")


@pytest.mark.parametrize("value", ["${SENTINEL}", "${SENTINEL:-default}", "${NOT_SET_ANYWHERE:-default}"])
async def test_a_rollout_that_asks_is_masked_before_its_sandbox_starts(tmp_path, serve, settings, spec_for, value):
    task = write_task(tmp_path / "asks", toml=ASKS.format(value=value))
    async with serve() as proxy:
        trajectory = await run_rollout(spec_for(task), settings, proxy)
    assert (trajectory.outcome, trajectory.blame, trajectory.reward) == (Outcome.SANDBOX_ERROR, Blame.TASK, None)
    assert trajectory.turns == 0
    assert "sandbox_s" not in trajectory.timings
    for part in (f"{task}/task.toml", "environment.env.SEEN", value[2:-1].split(":")[0], "sandbox.pass_env"):
        assert part in (trajectory.error or "")
    assert "driver-secret" not in trajectory.model_dump_json()


@pytest.mark.parametrize("environment", ["host", "local", "builders.bash_environment:BashEnvironment"])
async def test_the_preflight_refuses_it_whatever_the_sandbox(tmp_path, settings, environment):
    task = write_task(tmp_path / "asks", toml=ASKS.format(value="${SENTINEL}"))
    kwargs = {} if ":" in environment else settings.environment_kwargs
    settings = settings.model_copy(update={"environment": environment, "environment_kwargs": kwargs})
    with pytest.raises(TaskError, match=r"environment\.env\.SEEN .* SENTINEL, .*sandbox\.pass_env"):
        await preflight_task(task, settings)


async def test_an_allowed_variable_reaches_the_sandbox(tmp_path, serve, settings, spec_for):
    check = '[ "$SEEN" = driver-secret ]; echo $((1 - $?)) > /logs/verifier/reward.txt\n'
    task = write_task(tmp_path / "asks", toml=ASKS.format(value="${SENTINEL}"), test=check)
    async with serve() as proxy:
        trajectory = await run_rollout(spec_for(task), settings.model_copy(update={"pass_env": ("SENTINEL",)}), proxy)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.GRADED, 1.0)


@pytest.mark.parametrize(
    ("toml", "key"),
    [
        (ASKS.format(value="${SENTINEL}"), "environment.env.SEEN"),
        ('[verifier.env]\nSEEN = "${SENTINEL}"\n', "verifier.env.SEEN"),
        ('[verifier.environment.env]\nSEEN = "${SENTINEL}"\n', "verifier.environment.env.SEEN"),
        ('[solution.env]\nSEEN = "${SENTINEL}"\n', "solution.env.SEEN"),
        (STEP + '[steps.verifier.env]\nSEEN = "${SENTINEL}"\n', "steps.one.verifier.env.SEEN"),
        (
            STEP + '[steps.verifier.environment.env]\nSEEN = "${SENTINEL}"\n',
            "steps.one.verifier.environment.env.SEEN",
        ),
        (HEADER, "environment.mcp_servers.m.headers.Authorization"),
    ],
)
def test_every_place_that_harbor_fills_in_is_looked_at(tmp_path, toml, key):
    task = write_task(tmp_path / "asks", toml=toml)
    if "steps" in toml:
        (task / "steps" / "one").mkdir(parents=True)
        (task / "steps" / "one" / "instruction.md").write_text("Do it.\n")
    requests = requested_variables(prepared_task(task))
    assert [(request.key, request.variable) for request in requests] == [(key, "SENTINEL")]
    refuse_unless_allowed(requests, ["SENTINEL"])
    with pytest.raises(TaskError, match=r"sandbox\.pass_env"):
        refuse_unless_allowed(requests, ["OTHER"])


@pytest.mark.parametrize("text", ["image: a:$SENTINEL", "image: a:${SENTINEL:?must be set}", "- X=${Y:-${SENTINEL}}"])
def test_a_composition_may_not_interpolate_what_the_driver_has(tmp_path, text):
    task = write_task(tmp_path / "asks")
    (task / "environment" / "docker-compose.yaml").write_text(f"# $$SENTINEL ${{CONTEXT_DIR}}\n{text}\n")
    requests = requested_variables(prepared_task(task))
    refuse_unless_allowed(requests, ["SENTINEL"])
    with pytest.raises(TaskError, match=r"docker-compose\.yaml asks for .* SENTINEL"):
        refuse_unless_allowed(requests, [])


def test_plain_values_are_not_requests(tmp_path):
    task = write_task(tmp_path / "plain", toml=ASKS.format(value="costs $5, {SENTINEL} and $SENTINEL"))
    assert requested_variables(prepared_task(task)) == ()


async def test_a_sandbox_that_cannot_kill_leftovers_is_warned_of_once(tmp_path, serve, settings, caplog):
    cannot = settings.model_copy(
        update={"environment": "builders.bash_environment:BashEnvironment", "environment_kwargs": {}}
    )
    async with serve() as proxy:
        with caplog.at_level(logging.WARNING, "drydock"):
            RolloutPool(settings, proxy, 1)
            assert not caplog.records
            for _ in range(2):
                RolloutPool(cannot, proxy, 1)
                RolloutPool(settings.model_copy(update={"environment": "docker"}), proxy, 1)
    bash, docker = (record.getMessage() for record in caplog.records)
    assert "BashEnvironment cannot kill processes" in bash
    assert "docker cannot kill processes" in docker
