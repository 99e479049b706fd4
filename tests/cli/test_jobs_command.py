"""`drydock jobs` against a real service: two users, a job each, both over or about to be."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from builders.command import drydock, drydock_on_a_terminal
from builders.service_api import Api, sampling_config
from builders.tiny_model import build_tiny_model

from drydock.client import TrainingClient
from drydock.service.embedded import EmbeddedService
from drydock.service.identity import Role
from drydock.service.store import Store
from drydock.service.tokens import create_token
from drydock.wire.rest import FINISHED

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True, slots=True)
class Place:
    """A running service, its folder, a model, and the tokens of two users."""

    url: str
    state_dir: Path
    model: str
    ann: str
    bob: str

    def command(self, *words: str | Path, token: str | None = None, check: bool = True, **variables: str):
        variables = {"DRYDOCK_SERVICE_URL": self.url, "DRYDOCK_SERVICE_TOKEN": token or self.ann, **variables}
        return drydock("jobs", *words, check=check, **variables)

    def json(self, *words: str, **options):
        return json.loads(self.command(*words, "--json", **options).stdout)

    async def job(self, job_id: str, **fields: str) -> str:
        """A job of ann's."""
        async with Api(self.url, self.ann) as api:
            await api.post("", json={"job_id": job_id, "sub_job_configs": [sampling_config(self.model)], **fields})
        return job_id


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    folder = tmp_path_factory.mktemp("jobs")
    model = str(build_tiny_model(folder / "model"))
    state_dir = folder / "state"
    state_dir.mkdir()
    store = await Store.open(state_dir / "service.sqlite")
    ann, bob = [(await create_token(store, user, Role.USER))[0] for user in ("ann", "bob")]
    await store.close()
    async with EmbeddedService(state_dir, model_dirs=[folder]) as service:
        yield Place(service.base_url, state_dir, model, ann, bob)


async def test_the_service_of_a_run_needs_no_token_from_who_may_read_its_folder(place: Place) -> None:
    await place.job("of-ann")
    anyone = {"DRYDOCK_SERVICE_URL": "", "DRYDOCK_SERVICE_TOKEN": ""}
    shown = drydock("jobs", "list", "--state-dir", place.state_dir, check=True, **anyone).stdout
    assert "of-ann" in shown
    file = place.state_dir / "token"
    assert file.stat().st_mode & 0o777 == 0o600
    assert drydock("jobs", "list", "--url", place.url, check=False, **anyone).returncode == 2


async def test_the_token_is_gone_with_the_service(tmp_path: Path) -> None:
    async with EmbeddedService(tmp_path / "state") as service:
        assert (tmp_path / "state" / "token").read_text() == service.token.get_secret_value()
    assert not (tmp_path / "state" / "token").exists()


async def test_a_service_whose_token_cannot_be_kept_runs_all_the_same(tmp_path: Path, caplog) -> None:
    (tmp_path / "state" / "token").mkdir(parents=True)
    async with EmbeddedService(tmp_path / "state") as service:
        assert service.pid is not None
    assert "will need a token" in caplog.text


async def test_list_and_show(place: Place):
    await place.job("listed", comment="night run", name="a name")
    place.command("cancel", "listed", "--yes")
    [listed] = [job for job in place.json("list", "--comment", "night run")["jobs"] if job["job_id"] == "listed"]
    assert (listed["status"], listed["submitted_by"], listed["name"]) == ("cancelled", "ann", "a name")
    assert place.json("list", "--status", "running,pending")["jobs"] == []
    misspelt = place.command("list", "--status", "runing", check=False)
    assert misspelt.returncode == 2
    assert "--status runing: use pending" in misspelt.stderr
    assert place.json("list", token=place.bob)["jobs"] == []
    table = place.command("list").stdout
    assert all(word in table for word in ("listed", "a name", "cancelled", "ann", "night run", "cancelled by request"))

    await place.job("done")
    async with TrainingClient(place.url, token=place.ann) as client:
        await client.cancel_job("done", f"{FINISHED}: all of it")
    [done] = place.json("list", "--status", "finished")["jobs"]
    assert (done["job_id"], done["status"], done["reason"]) == ("done", "cancelled", "finished: all of it")
    assert {job["job_id"] for job in place.json("list", "--status", "cancelled")["jobs"]} >= {"listed", "done"}
    assert "status   finished" in place.command("show", "done").stdout

    shown = place.json("show", "listed")
    assert shown["job_id"] == shown["usage"]["job_id"] == "listed"
    text = place.command("show", "listed", "--state-dir", place.state_dir).stdout
    assert all(word in text for word in ("listed:sampling:0", "night run", "usage", "whole job"))
    refused = place.command("show", "listed", token=place.bob, check=False)
    assert refused.returncode != 0
    assert "belongs to another user" in refused.stderr
    unknown = place.command("show", "nobodys", check=False)
    assert "no job 'nobodys'" in unknown.stderr


async def test_logs(place: Place):
    await place.job("logged")
    place.command("cancel", "logged", "--yes")
    lines = [{"ts": f"2026-01-01T00:00:0{i}.5", "level": "INFO", "logger": "x", "msg": f"line {i}"} for i in range(3)]
    folder = place.state_dir / "jobs" / "logged" / "sampling-0"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "execution.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "console.log").write_text("printed\n")
    expected = [f"2026-01-01 00:00:0{i} INFO line {i}" for i in range(3)] + ["printed"]
    assert place.command("logs", "logged").stdout.splitlines() == expected
    assert place.command("logs", "logged", "--sub-job", "sampling:0", "--follow").stdout.splitlines() == expected
    entries = map(json.loads, place.command("logs", "logged", "--sub-job", "sampling", "--json").stdout.splitlines())
    assert [entry.get("msg", entry.get("_raw")) for entry in entries] == ["line 0", "line 1", "line 2", "printed"]
    refused = place.command("logs", "logged", "--sub-job", "training", check=False)
    assert "no sub-job 'training'; it has logged:sampling:0" in refused.stderr


async def test_a_job_that_may_not_be_ones_own_is_not_cancelled_unasked(place: Place):
    await place.job("doubted", comment="bobs run")
    mine = {"ARCTIC_CORTEX_JOB_COMMENT": "my run"}
    refused = place.command("cancel", "doubted", check=False, **mine)
    assert refused.returncode == 2
    assert "its comment is 'bobs run' and yours is 'my run'" in refused.stderr
    assert "--yes" in refused.stderr
    assert place.json("show", "doubted")["status"] != "cancelled"

    variables = {"DRYDOCK_SERVICE_URL": place.url, "DRYDOCK_SERVICE_TOKEN": place.ann, **mine}
    code, shown = drydock_on_a_terminal("jobs", "cancel", "doubted", types="n\n", after="[y/N]", **variables)
    assert code == 1
    assert "may not be yours" in shown
    assert place.json("show", "doubted")["status"] != "cancelled"
    code, shown = drydock_on_a_terminal("jobs", "cancel", "doubted", types="y\n", after="[y/N]", **variables)
    assert code == 0, shown
    assert place.json("show", "doubted")["status"] == "cancelled"
    assert "is cancelled" in place.command("cancel", "doubted", **mine).stdout


async def test_ones_own_job_is_cancelled_without_a_question(place: Place):
    await place.job("own", comment="my run")
    done = place.command("cancel", "own", "--comment", "my run")
    assert done.stdout.strip() == "job own is cancelled"


async def test_checkpoints_and_usage(place: Place):
    await place.job("used")
    place.command("cancel", "used", "--yes")
    assert place.json("checkpoints", "used") == {"checkpoints": []}
    assert "checkpoint" in place.command("checkpoints", "used").stdout
    usage = place.json("usage", "--by", "user")
    assert usage["by"] == "user"
    assert {line["user"] for line in usage["usage"]} <= {"ann"}
    assert "total" in place.command("usage").stdout
    refused = place.command("usage", "--user", "bob", check=False)
    assert "'bob' is not you" in refused.stderr


async def test_the_service_must_be_named_once(place: Place):
    nowhere = drydock("jobs", "list", check=False)
    assert nowhere.returncode == 2
    assert "give --url or --state-dir, or set DRYDOCK_SERVICE_URL" in nowhere.stderr
    both = drydock("jobs", "list", "--url", place.url, "--state-dir", place.state_dir, check=False)
    assert "not both" in both.stderr
    dead = drydock("jobs", "list", "--url", "http://127.0.0.1:9", check=False)
    assert dead.returncode == 1
    assert "127.0.0.1:9" in dead.stderr
