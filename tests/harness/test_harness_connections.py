import pytest

from drydock.errors import HarnessError
from drydock.harness import Connection, connection_for, offered


def test_a_connection_is_found_while_it_is_offered_and_never_after():
    connection = Connection("http://127.0.0.1:1/v1", "key")
    with offered("r1", connection):
        assert connection_for("r1") is connection
    with pytest.raises(HarnessError, match="no model endpoint was offered for rollout 'r1'"):
        connection_for("r1")


def test_two_rollouts_cannot_share_an_id():
    with (
        offered("r1", Connection("http://a", "k1")),
        pytest.raises(HarnessError, match="already running"),
        offered("r1", Connection("http://b", "k2")),
    ):
        pass


def test_a_key_is_not_in_the_text_of_a_connection():
    assert "secret" not in repr(Connection("http://a", "secret"))
