import pytest

from drydock.chat.refusal import RequestRefused
from drydock.proxy.keys import RolloutKeys, new_key


def test_keys_are_long_distinct_and_safe_in_a_header() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(len(key) > 60 and key.isascii() and not set(key) & set(" ,;\"'") for key in keys)


@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "Bearer"}, {"authorization": "Bearer é"}, {"x-api-key": "-"}]
)
def test_what_is_no_key_is_an_unknown_key(headers: dict[str, str]) -> None:
    with pytest.raises(RequestRefused) as caught:
        RolloutKeys().session_of(headers)
    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")
