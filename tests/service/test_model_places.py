"""Which folders a job may name, by who asks."""

from pathlib import Path
from typing import Any

import pytest

from drydock.service.identity import Identity, Role
from drydock.service.model_places import placed
from drydock.service.problems import Refusal

ADMIN, USER = Identity("ann", Role.ADMIN, "t1"), Identity("bob", Role.USER, "t2")


def naming(model: str, **inference: Any) -> dict[str, Any]:
    return {"sub_job_configs": [{"job_type": "sampling", "model_name": model, "inference_config": inference}]}


@pytest.mark.parametrize("name", ["Qwen/Qwen3-0.6B", "gpt2"])
def test_hub_ids_are_free_and_stay_as_they_are(name: str, tmp_path: Path):
    for who in (ADMIN, USER):
        for model_dirs in ([tmp_path], []):
            assert placed(naming(name), model_dirs, who) == naming(name)


def test_without_model_dirs_only_admins_name_folders(tmp_path: Path):
    assert placed(naming(str(tmp_path)), [], ADMIN) == naming(str(tmp_path))
    with pytest.raises(Refusal, match=r"sub_job_configs.0.model_name: the folder"):
        placed(naming(str(tmp_path)), [], USER)


def test_adapter_folders_are_held_to_the_same(tmp_path: Path):
    with pytest.raises(Refusal, match=r"sub_job_configs.0.inference_config.adapters.a: the folder") as caught:
        placed(naming("gpt2", adapters={"a": "/root"}), [], USER)
    assert caught.value.status == 403
    with pytest.raises(Refusal, match="may not be used"):
        placed(naming("gpt2", adapters={"a": "no-such-folder"}), [tmp_path], ADMIN)
    with pytest.raises(Refusal, match=r"inference_config.policy_adapter: the folder"):
        placed(naming("gpt2", policy_adapter="/root"), [tmp_path], ADMIN)
    folder = str(tmp_path / "a")
    allowed = naming("gpt2", adapters={"a": folder}, policy_adapter=folder, max_seq_len=8)
    assert placed(allowed, [tmp_path], USER) == allowed


def test_a_relative_folder_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    assert placed(naming("model"), [], ADMIN) == naming(str(tmp_path / "model"))


@pytest.mark.parametrize("who", [ADMIN, USER])
def test_folders_outside_model_dirs_are_refused_whatever_leads_there(
    tmp_path: Path, who: Identity, monkeypatch: pytest.MonkeyPatch
):
    models, secret = tmp_path / "models", tmp_path / "secret"
    (models / "tiny").mkdir(parents=True)
    secret.mkdir()
    (models / "link").symlink_to(secret)
    (tmp_path / "organisation" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    placed(naming(str(models / "tiny")), [models], who)
    around = f"{models}/tiny/../../secret"
    outside = (str(secret), str(models / "link"), around, "~", "..", "secret", "organisation/name", "/no/such/folder")
    for name in outside:
        with pytest.raises(Refusal, match="may not be used") as caught:
            placed(naming(name), [models], who)
        assert caught.value.status == 403
