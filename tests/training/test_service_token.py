import os

import pytest

from drydock.cli.train import train
from drydock.errors import ConfigError


def test_the_token_is_taken_out_of_the_environment(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRYDOCK_SERVICE_TOKEN", "secret")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="nowhere"):
        train("data.train=nowhere", ["trainer.policy.model.path=m", f"sandbox.state_dir={tmp_path / 'state'}"])
    assert "DRYDOCK_SERVICE_TOKEN" not in os.environ
