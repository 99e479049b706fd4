"""`drydock service`: start, status, stop and tokens, as commands."""

import json
import os
import signal
import time
from pathlib import Path

import httpx
import pytest
from builders.certificate import make_certificate
from builders.command import drydock
from builders.service_api import PREFIX

from drydock.cli.service_config import load_service_settings
from drydock.errors import ConfigError
from drydock.service.settings import ServiceSettings


@pytest.fixture
def state_dir(tmp_path: Path):
    """A state folder whose service, if one runs there, is stopped at the end."""
    folder = tmp_path / "state"
    yield folder
    if (folder / "service.lock").exists():
        drydock("service", "stop", "--state-dir", folder)


def test_start_detached_status_stop(state_dir: Path):
    started = drydock("service", "start", "--state-dir", state_dir, "--port", "0", "--detach")
    said = json.loads(drydock("service", "status", "--state-dir", state_dir, "--json").stdout)
    assert said["running"] is True
    assert said["answers"] is True
    assert f"{said['url']} (pid {said['pid']})" in started.stdout
    assert json.loads((state_dir / "service.json").read_text())["pid"] == said["pid"]
    assert httpx.get(said["url"] + PREFIX + "/whoami").json() == {"user": "operator", "role": "admin"}

    again = drydock("service", "start", "--state-dir", state_dir, "--port", "0", "--detach", check=False)
    assert again.returncode == 2
    assert "another service runs on" in again.stderr

    assert "has ended" in drydock("service", "stop", "--state-dir", state_dir).stdout
    assert not (state_dir / "service.json").exists()
    gone = drydock("service", "status", "--state-dir", state_dir, check=False)
    assert (gone.returncode, gone.stdout.strip()) == (1, f"no service runs on {state_dir}")
    assert "no service runs" in drydock("service", "stop", "--state-dir", state_dir).stdout


def test_what_a_killed_service_left_behind_is_not_taken_for_a_service(state_dir: Path):
    drydock("service", "start", "--state-dir", state_dir, "--port", "0", "--detach")
    pid = json.loads((state_dir / "service.json").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    ends = time.monotonic() + 10
    while drydock("service", "status", "--state-dir", state_dir, check=False).returncode != 1:
        assert time.monotonic() < ends
    assert (state_dir / "service.json").exists()
    refused = drydock("jobs", "list", "--state-dir", state_dir, check=False)
    assert refused.returncode == 2
    assert "no service runs" in refused.stderr


def test_a_folder_that_no_service_had_is_named(tmp_path: Path):
    refused = drydock("service", "status", "--state-dir", tmp_path / "other", check=False)
    assert refused.returncode == 2
    assert "is not the state folder of a service" in refused.stderr


def test_tokens_are_made_listed_and_revoked_beside_a_running_service(state_dir: Path, tmp_path: Path):
    options = ("--host", "0.0.0.0", "--port", "0", "--detach")
    refused = drydock("service", "start", "--state-dir", state_dir, *options, check=False)
    assert refused.returncode == 2
    assert "has no token" in refused.stderr

    made = drydock("service", "token", "create", "--state-dir", state_dir, "--user", "ann", "--role", "admin")
    token = made.stdout.strip()
    assert "cannot be shown again" in made.stderr
    tls = make_certificate(tmp_path / "tls")
    drydock("service", "start", "--state-dir", state_dir, *options, "--tls-cert", tls.cert, "--tls-key", tls.key)
    where = ("--state-dir", state_dir, "--ca-file", tls.cert)
    assert json.loads(drydock("jobs", "list", *where, "--json", DRYDOCK_SERVICE_TOKEN=token).stdout) == {"jobs": []}
    assert json.loads(drydock("service", "status", "--state-dir", state_dir, "--json").stdout)["answers"] is True

    [row] = json.loads(drydock("service", "token", "list", "--state-dir", state_dir, "--json").stdout)["tokens"]
    assert (row["user"], row["role"], row["revoked_at"]) == ("ann", "admin", None)
    assert token not in drydock("service", "token", "list", "--state-dir", state_dir).stdout
    drydock("service", "token", "revoke", row["token_id"], "--state-dir", state_dir)
    time.sleep(2)
    refused = drydock("jobs", "list", *where, check=False, DRYDOCK_SERVICE_TOKEN=token)
    assert refused.returncode != 0
    assert f"token {row['token_id']} is revoked" in refused.stderr
    assert token not in refused.stderr

    wrong = ("--user", "ann", "--role", "root")
    refused = drydock("service", "token", "create", "--state-dir", state_dir, *wrong, check=False)
    assert refused.returncode == 2
    assert "use one of user, admin, viewer" in refused.stderr


def test_every_setting_is_reached_by_file_and_by_word(tmp_path: Path):
    file = tmp_path / "service.toml"
    file.write_text('state_dir = "state"\nrate_limit_per_s = 5\n[pool]\nH200 = 8\n')
    settings = load_service_settings(file, {"port": 7}, ["rate_limit_per_s=50", "pool.B200=2", "prices.gpu_seconds=2"])
    assert settings.state_dir == tmp_path / "state"
    assert (settings.port, settings.rate_limit_per_s, settings.pool) == (7, 50.0, {"H200": 8, "B200": 2})
    assert settings.prices == {"gpu_seconds": 2.0}
    words = {
        "outlive_api_s": "1",
        "heartbeat_timeout_s": "2",
        "worker_memory_mb": "100",
        "sync_dir": "/dev/shm/x",
        "max_body_bytes": "2000000",
        "max_chunk_store_bytes": "2000000",
        "max_result_bytes": "3",
        "max_wait_s": "4",
        "request_retention_days": "5",
        "database_url": "postgresql://u:p@h/d",
        "host": "::1",
    }
    settings = load_service_settings(file, {}, [f"{key}={value}" for key, value in words.items()])
    assert {key for key in words if key in settings.model_fields_set} == set(words)
    assert settings.model_fields_set | set(words) <= set(ServiceSettings.model_fields)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], r"state_dir: missing; give --state-dir"),
        (["state_dir=x", "rate_limit=5"], r"unknown setting rate_limit: did you mean rate_limit_per_s\?"),
        (["state_dir=x", "port=99999"], r"port: .*65535"),
        (["state_dir=x", "tls_cert=a.pem"], r"tls_cert and tls_key belong together"),
        (["state_dir=x", "a.b.c=1"], r"cannot read the setting 'a\.b\.c=1'"),
        (["state_dir=x", "pool"], r"cannot read the override 'pool'"),
    ],
)
def test_a_setting_that_cannot_be_is_named(words: list[str], message: str):
    with pytest.raises(ConfigError, match=message):
        load_service_settings(None, {}, words)
