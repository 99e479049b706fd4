"""The tiny template that the chat tests share."""

from pathlib import Path

import pytest
from builders.tiny_tokenizer import build_tiny_tokenizer

from drydock.chat.template import ChatTemplate


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="session")
def template(tokenizer_folder: Path) -> ChatTemplate:
    return ChatTemplate.load(tokenizer_folder)
