from pathlib import Path

from drydock.service.settings import ServiceSettings


def test_a_relative_state_folder_becomes_absolute(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = ServiceSettings(state_dir=Path("state"))
    assert settings.state_dir == tmp_path / "state"
    assert settings.weights_dir == tmp_path / "state" / "sync"
    assert ServiceSettings(state_dir=Path("state"), sync_dir=Path("sync")).weights_dir == tmp_path / "sync"
