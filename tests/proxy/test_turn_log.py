from pathlib import Path

from drydock.proxy.record import LoggedTurn
from drydock.proxy.turn_log import TurnLog, read_turn_log


def logged(index: int) -> LoggedTurn:
    return LoggedTurn(
        rollout_id="r",
        added_ids=[1, 2],
        index=index,
        parent=index - 1 if index else None,
        prompt_length=2,
        prompt_sha256="0" * 64,
        sampled_ids=[3],
        logprobs=[-0.1],
        policy_version=4,
        finish_reason="stop",
        started_at=1.0,
        seconds=0.5,
        branch=0,
    )


def test_a_log_is_read_up_to_the_line_that_a_kill_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "turns" / "r.jsonl"
    assert read_turn_log(file) == []
    log = TurnLog(file)
    turns = [logged(index) for index in range(3)]
    for turn in turns:
        log.append(turn)
    log.close()
    assert read_turn_log(file) == turns
    file.write_bytes(file.read_bytes()[:-20])
    assert read_turn_log(file) == turns[:2]
