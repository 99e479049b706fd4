"""Text and bytes of single tokens: put together they are the text that was tokenized, whatever it is."""

from pathlib import Path

import pytest
from builders.tiny_tokenizer import build_tiny_tokenizer
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from drydock.service.serving.token_text import TokenText

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.text("ab é你🙂\ufffd", max_size=30)


def sentencepiece_like(*, metaspace: bool) -> Tokenizer:
    """Pieces with ▁ for a space and byte fallback, as tokenizers converted from SentencePiece have them."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a", "ab", "▁ab", "é", "\ufffd"]
    merges = [("▁", "a"), ("a", "b"), ("▁a", "b")]
    vocabulary = {piece: place for place, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
        tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")])
    else:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        tokenizer.decoder = decoders.Sequence(parts)
    return tokenizer


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = build_tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    return Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))


def joined(tokenizer: Tokenizer, text: str) -> bytes:
    tokens = TokenText(tokenizer)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return b"".join(bytes(tokens.bytes_of(token) or []) for token in ids)


@given(TEXT)
def test_bytes_of_byte_level_tokens_make_up_the_text(byte_level: Tokenizer, text: str):
    assert byte_level.normalizer is None
    assert joined(byte_level, text) == text.encode()


@pytest.mark.parametrize("metaspace", [False, True])
@given(text=TEXT)
def test_bytes_of_tokens_with_byte_fallback_make_up_the_text_and_the_space_before_it(metaspace: bool, text: str):
    text = text.replace("▁", "")
    assert joined(sentencepiece_like(metaspace=metaspace), text) in (text.encode(), b" " + text.encode())


def test_a_part_of_a_character_has_its_bytes_and_no_text(byte_level: Tokenizer):
    ids = byte_level.encode("你").ids
    tokens = TokenText(byte_level)
    assert len(ids) > 1
    assert [byte for token in ids for byte in tokens.bytes_of(token) or []] == [0xE4, 0xBD, 0xA0]
    assert {tokens.text(token) for token in ids} == {"\ufffd"}
    fallback = sentencepiece_like(metaspace=False)
    tokens = TokenText(fallback)
    assert [tokens.bytes_of(token) for token in fallback.encode("你").ids] == [[0x20], [0xE4], [0xBD], [0xA0]]


def test_special_tokens_are_spelt_and_the_replacement_character_is_itself(byte_level: Tokenizer):
    tokens = TokenText(byte_level)
    end = byte_level.token_to_id("<|im_end|>")
    assert (tokens.text(end), tokens.bytes_of(end)) == ("<|im_end|>", list(b"<|im_end|>"))
    fallback = sentencepiece_like(metaspace=False)
    assert TokenText(fallback).bytes_of(fallback.token_to_id("\ufffd")) == list("\ufffd".encode())


def test_the_space_before_a_word_is_its_tokens_but_for_the_first_of_a_text():
    fallback = sentencepiece_like(metaspace=False)
    tokens, word = TokenText(fallback), fallback.token_to_id("▁ab")
    assert tokens.text(word) == " ab"
    assert tokens.text(word, first=True) == "ab"
