import pytest
from hypothesis import given
from hypothesis import strategies as st

from drydock.engine.retention import StoredCheckpoint, removable_checkpoints


def stored(*steps: int, kind: str = "resumable") -> list[StoredCheckpoint]:
    return [StoredCheckpoint(f"cp{step}", step, kind, float(step)) for step in steps]


def test_the_newest_and_every_nth_stay():
    checkpoints = stored(0, 10, 20, 30, 40, 50)
    assert removable_checkpoints(checkpoints, keep_last=2) == ["cp0", "cp10", "cp20", "cp30"]
    assert removable_checkpoints(checkpoints, keep_last=1, keep_every=20) == ["cp10", "cp30"]
    assert removable_checkpoints(checkpoints, keep_last=9) == []
    assert removable_checkpoints(checkpoints, keep_last=None) == []


def test_the_only_checkpoint_to_resume_from_stays_behind_newer_exports():
    checkpoints = stored(10, 20) + stored(30, 40, kind="weights-only")
    assert removable_checkpoints(checkpoints, keep_last=1) == ["cp10", "cp30"]


def test_a_policy_that_keeps_nothing_is_refused():
    with pytest.raises(ValueError, match="keep_last must be at least 1"):
        removable_checkpoints(stored(1), keep_last=0)
    with pytest.raises(ValueError, match="keep_every must be at least 1"):
        removable_checkpoints(stored(1), keep_last=1, keep_every=0)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.sampled_from(["resumable", "weights-only"])), max_size=12),
    st.integers(1, 5),
    st.none() | st.integers(1, 7),
    st.sets(st.integers(0, 11)),
)
def test_what_is_needed_is_never_let_go(
    given_checkpoints: list[tuple[int, str]], keep_last: int, keep_every: int | None, needed: set[int]
):
    checkpoints = [StoredCheckpoint(f"cp{i}", step, kind, float(i)) for i, (step, kind) in enumerate(given_checkpoints)]
    pinned = {f"cp{i}" for i in needed}
    removed = set(removable_checkpoints(checkpoints, keep_last=keep_last, keep_every=keep_every, needed=pinned))
    assert not removed & pinned
    newest = sorted(checkpoints, key=lambda c: (c.global_steps, c.created_at))[-keep_last:]
    assert not removed & {c.checkpoint_id for c in newest}
    assert all(c.global_steps % keep_every for c in checkpoints if keep_every and c.checkpoint_id in removed)
    kinds = [c.checkpoint_type for c in checkpoints if c.checkpoint_id not in removed]
    assert ("resumable" in kinds) == any(c.checkpoint_type == "resumable" for c in checkpoints)
