"""The tiny template that all proxy tests share, and proxies with it."""

from pathlib import Path

import pytest
from builders.running_proxy import Running, running_with
from builders.tiny_tokenizer import build_tiny_tokenizer

from drydock.chat.template import ChatTemplate

pytest.register_assert_rewrite("builders.histories")


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="session")
def template(tokenizer_folder: Path) -> ChatTemplate:
    return ChatTemplate.load(tokenizer_folder)


@pytest.fixture
def running(template: ChatTemplate) -> Running:
    return running_with(template)
