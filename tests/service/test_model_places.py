"""Which folders a job may name, by who asks."""

from pathlib import Path

import pytest

from drydock.service.identity import Identity, Role
from drydock.service.model_places import check_place
from drydock.service.problems import Refusal

ADMIN, USER = Identity("ann", Role.ADMIN, "t1"), Identity("bob", Role.USER, "t2")


@pytest.mark.parametrize("name", ["Qwen/Qwen3-0.6B", "gpt2"])
def test_hub_ids_are_free(name: str, tmp_path: Path):
    for who in (ADMIN, USER):
        check_place(name, "model_name", [tmp_path], who)
        check_place(name, "model_name", [], who)


def test_without_model_dirs_only_admins_name_folders(tmp_path: Path):
    check_place(str(tmp_path), "model_name", [], ADMIN)
    with pytest.raises(Refusal, match="model_name: the folder"):
        check_place(str(tmp_path), "sub_job_configs.0.model_name", [], USER)


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
    check_place(str(models / "tiny"), "model_name", [models], who)
    inside_out = f"{models}/tiny/../../secret"
    for name in (
        str(secret),
        str(models / "link"),
        inside_out,
        "~",
        "..",
        "secret",
        "organisation/name",
        "/no/such/folder",
    ):
        with pytest.raises(Refusal, match="may not be used") as caught:
            check_place(name, "model_name", [models], who)
        assert caught.value.status == 403
