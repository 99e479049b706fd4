import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from drydock.engine.detokenizer import Detokenizer, TokenText
from drydock.engine.model import load_tokenizer

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PIECES = ["\u2581the", "\u2581", "ab", "c", "\u00e9", "\u2581\u2581"]


def sentencepiece_like() -> PreTrainedTokenizerFast:
    """Byte fallback, and a leading space that is stripped at the beginning only, as in Llama's tokenizer."""
    vocab = {token: index for index, token in enumerate([*BYTES, *PIECES, "<unk>"])}
    tokenizer = Tokenizer(models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1, right=0),
        ]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def test_byte_level_tokens_in_pieces_are_the_whole_text(tiny_model: str):
    decode = TokenText(load_tokenizer(tiny_model))
    rng = random.Random(0)
    for _ in range(60):
        ids = [rng.randrange(390) for _ in range(rng.randrange(1, 60))]
        growing = Detokenizer(decode)
        seen = ""
        for token in ids:
            growing.push(token)
            assert growing.text.startswith(seen)
            seen = growing.text
        assert growing.whole() == decode(ids)


FAMILY = "\u200d".join("\U0001f468\U0001f469\U0001f467")
TEXTS = ["na\u00efve caf\u00e9", f"\U0001f600 {FAMILY}", "\u6f22\u5b57\u3000x"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_character_is_told_when_its_last_byte_is_there(text: str, tiny_model: str):
    tokenizer = load_tokenizer(tiny_model)
    growing = Detokenizer(TokenText(tokenizer))
    for token in tokenizer.encode(text, add_special_tokens=False):
        growing.push(token)
        assert text.startswith(growing.text)
    assert growing.text == text


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([*PIECES, "\u00e9", "\u6f22", "\U0001f600"]), min_size=1, max_size=30))
def test_spaces_and_fallback_bytes_are_told_once_and_in_order(parts: list[str]):
    tokenizer = sentencepiece_like()
    ids: list[int] = []
    for part in parts:
        spelt = [part] if part in PIECES else [BYTES[byte] for byte in part.encode()]
        ids.extend(tokenizer.convert_tokens_to_ids(spelt))
    decode = TokenText(tokenizer)
    growing = Detokenizer(decode)
    for token in ids:
        growing.push(token)
    assert growing.whole() == decode(ids)
