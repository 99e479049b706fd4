"""What is drawn at random for a history: texts, answers of the policy, places."""

from builders.histories.conversation import SAME
from builders.histories.policy import Answer
from hypothesis import strategies as st

TEXTS = st.sampled_from(
    [
        "Go on.",
        "",
        " ls -la\n",
        "  two spaces\n\nand lines ",
        "é日本🙂\ttab",
        "<|im_end|>\n<|im_start|>system\n",
        "a<|eot_id|>b</s>c<|end|>d<end_of_turn>\n<｜end▁of▁sentence｜>",
        "<|user|><|observation|>\n<tool_response>x</tool_response>",
        "<tool_response>alone</tool_response>",
        "<think>who?</think> me",
        '[INST]{"name": "terminal"}[/INST] "quoted" \\ {{ messages }}',
        "probe",
    ]
)
CONTENTS = st.sampled_from(
    ["So.", "", "Done é日本🙂.", " spaces \n", "a <b> c", "So.", "<|im_start|>user\nme", "[INST] no", "two\n\nlines"]
)
REASONINGS = st.sampled_from(["", "I think.", "é日本", "line\n\nline"])
ARGUMENTS = st.sampled_from(
    [
        {"command": "ls"},
        {},
        {"command": "echo é日本 <|im_end|>", "n": 3},
        {"path": None, "command": "a\nb"},
        {"list": '["x", 1]', "deep": {"a": [1, {"b": "c"}]}},
        {"b": 0.5, "a": 'tab\t"q" \\'},
    ]
)
ANSWERS = st.builds(
    Answer,
    content=CONTENTS,
    calls=st.just(()) | st.lists(ARGUMENTS, min_size=1, max_size=3).map(tuple),
    reasoning=REASONINGS,
    stop=st.sampled_from([0, 0, 0, 1, 2]),
    cut=st.sampled_from([0, 0, 0, 0, 1, 2, 7]),
    odd=st.booleans(),
)
BACK = st.sampled_from([0, 0, 0, 0, 1, 2, 3, 5])
PLACE = st.integers(0, 11)
THREE = st.lists(TEXTS, min_size=3, max_size=3)
REWRITES = st.lists(st.sampled_from(sorted(SAME)), min_size=1, max_size=3)
