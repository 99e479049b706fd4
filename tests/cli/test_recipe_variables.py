"""The environment variables of the published recipes, and what wins over them."""

from pathlib import Path

import pytest

from drydock.cli.run_arguments import read_run
from drydock.errors import ConfigError
from drydock.training.config import RunConfig
from drydock.training.sft.config import SftConfig

VARIABLES = {
    "TRAIN_HARBOR_TASKS": "tasks/a:/tasks/b:",
    "EVAL_HARBOR_TASKS": "held_out",
    "RUN_NAME": "mine",
    "LOGGER": "console",
    "STARTUP_TIMEOUT": "90",
    "ARCTIC_CORTEX_BASE_URL": "http://gpu-box:8094",
    "ARCTIC_CORTEX_DATABASE": "DB",
    "ARCTIC_CORTEX_SCHEMA": "S",
    "ARCTIC_CORTEX_ENDPOINT": "E",
    "ARCTIC_CORTEX_JOB_COMMENT": "mine by hand",
}
MODEL = "trainer.policy.model.path=m"
TASKS = "data.train=t"


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in (*VARIABLES, "ARCTIC_CORTEX_HOST", "ARCTIC_CORTEX_PAT", "CKPT_DIR"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def read(patch: pytest.MonkeyPatch, variables: dict[str, str], *overrides: str) -> RunConfig:
    for name, value in variables.items():
        patch.setenv(name, value)
    return read_run(RunConfig, MODEL, overrides)[0]


def test_every_variable_has_its_key(patch: pytest.MonkeyPatch) -> None:
    run = read(patch, VARIABLES)
    assert run.data.train == [Path.cwd() / "tasks/a", Path("/tasks/b")]
    assert run.data.eval == [Path.cwd() / "held_out"]
    assert (run.trainer.run_name, run.trainer.logger, run.deadlines.job_running_s) == ("mine", "console", 90)
    service = run.service
    assert (service.base_url, service.database, service.schema_name) == ("http://gpu-box:8094", "DB", "S")
    assert (service.endpoint, service.job_comment) == ("E", "mine by hand")


def test_the_configuration_wins_and_empty_variables_say_nothing(patch: pytest.MonkeyPatch) -> None:
    own = ["data.train=own", "trainer.run_name=own", "service.schema=OWN", "deadlines.job_running_s=5"]
    run = read(patch, {**VARIABLES, "EVAL_HARBOR_TASKS": " "}, *own)
    assert (run.data.train, run.data.eval) == ([Path.cwd() / "own"], [])
    assert (run.trainer.run_name, run.deadlines.job_running_s) == ("own", 5)
    assert (run.service.schema_name, run.service.database) == ("OWN", "DB")


def test_a_service_that_the_configuration_names_wins_over_the_environments(patch: pytest.MonkeyPatch) -> None:
    hosted = ["service.host=account.example.com", "service.database=X"]
    assert read(patch, VARIABLES, *hosted).service.address == "https://account.example.com"
    patch.delenv("ARCTIC_CORTEX_BASE_URL")
    own = read(patch, {"ARCTIC_CORTEX_HOST": "other.example.com"}, "service.base_url=http://box:1")
    assert own.service.address == "http://box:1"


def test_a_hosted_service_needs_its_database(patch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="ARCTIC_CORTEX_DATABASE"):
        read(patch, {"ARCTIC_CORTEX_HOST": "account.example.com"}, TASKS)
    assert read(patch, {"ARCTIC_CORTEX_DATABASE": "DB"}, TASKS).service.address == "https://account.example.com"


def test_the_access_token_is_taken_out_of_the_environment(patch: pytest.MonkeyPatch) -> None:
    patch.setenv("ARCTIC_CORTEX_PAT", "very-secret")
    run, secrets = read_run(RunConfig, MODEL, [TASKS])
    assert secrets.pat is not None
    assert secrets.pat.get_secret_value() == "very-secret"
    assert "very-secret" not in f"{run!r} {secrets!r}"
    assert read_run(RunConfig, MODEL, [TASKS])[1].pat is None


@pytest.mark.parametrize(
    ("name", "value", "key"),
    [
        ("RUN_NAME", "a/b", "trainer.run_name"),
        ("STARTUP_TIMEOUT", "soon", "deadlines.job_running_s"),
        ("LOGGER", "elsewhere", "trainer.logger"),
        ("ARCTIC_CORTEX_HOST", "https://x", "service.host"),
    ],
)
def test_what_cannot_be_is_refused_by_variable_and_key(
    patch: pytest.MonkeyPatch, name: str, value: str, key: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        read(patch, {name: value}, TASKS)
    assert key in str(refusal.value)
    assert str(refusal.value).endswith(f"(environment variables: {name})")


def test_supervised_runs_take_names_and_service_only(patch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        patch.setenv(name, value)
    run, _ = read_run(SftConfig, MODEL, ["data.train=c.jsonl"])
    assert (run.trainer.run_name, run.service.job_comment) == ("mine", "mine by hand")
    assert [Path(one).name for one in run.data.train] == ["c.jsonl"]
