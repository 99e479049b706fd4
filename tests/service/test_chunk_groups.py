import uuid

import pytest

from drydock.service.chunk_groups import ChunkGroups
from drydock.service.problems import Refusal
from drydock.wire.chunks import Chunk, parse_chunk, reassemble, split_request
from drydock.wire.frame import encode_frame


def upload(text: str = "x" * 30_000, group_id: str | None = None) -> tuple[bytes, list[Chunk]]:
    frame = encode_frame({"text": text})
    bodies = split_request(frame, operation="fwd-bwd", group_id=group_id or str(uuid.uuid4()), max_bytes=18_000)
    return frame, [parse_chunk(body) for body in bodies]


def refused(groups: ChunkGroups, chunk: Chunk) -> tuple[int, dict]:
    with pytest.raises(Refusal) as caught:
        groups.add(chunk)
    return caught.value.status, caught.value.detail


def test_the_last_chunk_gives_the_whole_frame():
    frame, chunks = upload()
    groups = ChunkGroups(1 << 20)
    assert len(chunks) > 2
    assert [groups.add(chunk) for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    whole = groups.add(chunks[-1])
    assert whole is not None
    assert reassemble(whole) == frame


def test_a_repeated_chunk_changes_nothing():
    frame, chunks = upload()
    groups = ChunkGroups(1 << 20)
    for chunk in [chunks[0], *chunks[:-1]]:
        assert groups.add(chunk) is None
    whole = groups.add(chunks[-1])
    assert whole is not None
    assert reassemble(whole) == frame


def test_an_unknown_group_must_restart_at_chunk_0():
    _, chunks = upload()
    status, detail = refused(ChunkGroups(1 << 20), chunks[1])
    assert status == 409
    assert detail["code"] == "chunk_group_restart_required"
    assert detail["expected_start_chunk"] == 0
    assert detail["received_chunk"] == 1
    assert detail["chunk_group_id"] == chunks[1].descriptor.chunk_group_id  # type: ignore[union-attr]


def test_another_frame_under_the_same_id_conflicts():
    group_id = str(uuid.uuid4())
    groups = ChunkGroups(1 << 20)
    groups.add(upload(group_id=group_id)[1][0])
    status, detail = refused(groups, upload("y" * 30_000, group_id)[1][1])
    assert (status, detail["code"]) == (409, "chunk_group_conflict")


def test_a_last_chunk_before_the_others_names_them():
    _, chunks = upload()
    groups = ChunkGroups(1 << 20)
    groups.add(chunks[0])
    status, detail = refused(groups, chunks[-1])
    assert (status, detail["code"]) == (409, "chunk_group_missing_chunks")
    assert detail["missing_chunks"] == list(range(1, len(chunks) - 1))
    assert "request chunk group is missing chunks" in detail["message"]


def test_unfinished_uploads_are_bounded():
    groups = ChunkGroups(15_000)
    groups.add(upload()[1][0])
    assert refused(groups, upload()[1][0])[0] == 429
