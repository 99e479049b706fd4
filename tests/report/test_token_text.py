from pathlib import Path

import pytest
from builders.tiny_tokenizer import build_tiny_tokenizer
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from drydock.chat.template_files import read_tokenizer
from drydock.report.printable import printable
from drydock.report.token_text import token_texts


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder: Path = build_tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    return read_tokenizer(folder)


@given(text=st.text())
def test_texts_of_tokens_join_to_the_text(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    texts = token_texts(tokenizer, ids)
    assert len(texts) == len(ids)
    assert "".join(texts) == text


@given(ids=st.lists(st.integers(0, 479)))
def test_any_ids_get_one_text_each_and_join_to_their_decoding(tokenizer: Tokenizer, ids: list[int]) -> None:
    texts = token_texts(tokenizer, ids)
    assert len(texts) == len(ids)
    joined = "".join(texts).replace("\N{REPLACEMENT CHARACTER}", "")
    assert joined == tokenizer.decode(ids, skip_special_tokens=False).replace("\N{REPLACEMENT CHARACTER}", "")


def test_the_token_that_completes_a_character_says_it(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a你b", add_special_tokens=False).ids
    assert token_texts(tokenizer, ids) == ["a", "", "", "你", "b"]


def test_control_characters_become_pictures() -> None:
    assert printable("a\x1b[2J\r\n\tb\x7f\x9b") == "a\u241b[2J\u240d\n\tb\u2421\ufffd"
