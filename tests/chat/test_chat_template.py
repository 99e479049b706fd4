import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from builders.chat_template import HERMES_CHATML
from builders.tiny_tokenizer import build_tiny_tokenizer

from drydock.chat.continuation import HistoryRewritten
from drydock.chat.template import ChatTemplate
from drydock.errors import TemplateError, UserError

HIDES_OLD_THINKING = """\
{%- set last = namespace(user=-1) %}
{%- for message in messages %}
    {%- if message.role == 'user' %}{% set last.user = loop.index0 %}{% endif %}
{%- endfor %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.role == 'assistant' and loop.index0 > last.user and loop.last %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
    {{- message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""


def test_renders_tools_calls_and_merged_tool_results_as_qwen_does(template: ChatTemplate) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "terminal", "arguments": {"command": "echo é"}}}
    text = template.render(
        [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "u"},
            {"role": "assistant", "content": "t", "tool_calls": [call, call]},
            {"role": "tool", "content": "a", "tool_call_id": "1"},
            {"role": "tool", "content": "b", "tool_call_id": "1"},
        ],
        [{"type": "function", "function": {"name": "terminal"}}],
        True,
    )
    rendered_call = '\n<tool_call>\n{"name": "terminal", "arguments": {"command": "echo é"}}\n</tool_call>'
    assert text.endswith(
        "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\nt" + rendered_call * 2 + "<|im_end|>\n<|im_start|>user\n"
        "<tool_response>\na\n</tool_response>\n<tool_response>\nb\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    assert '<tools>\n{"type": "function", "function": {"name": "terminal"}}\n</tools>' in text


def test_stop_ids_are_the_turn_end_and_every_end_that_the_model_names(tmp_path: Path) -> None:
    folder = build_tiny_tokenizer(tmp_path)
    (folder / "generation_config.json").write_text('{"eos_token_id": [0, 2]}')
    template = ChatTemplate.load(folder)
    assert (template.turn_end, template.turn_end_id) == ("<|im_end|>", 2)
    assert template.stop_ids == (0, 2)
    ids = template.encode("done")
    assert template.turn_text([*ids, 0]) == template.turn_text([*ids, 2]) == template.turn_text(ids) == "done"


def test_a_template_in_its_own_file_wins(tmp_path: Path) -> None:
    folder = build_tiny_tokenizer(tmp_path, "{{ raise_exception('not this one') }}")
    (folder / "chat_template.jinja").write_text(HERMES_CHATML)
    assert ChatTemplate.load(folder).render([{"role": "user", "content": "u"}], None, False).endswith("u<|im_end|>\n")


def test_first_prompt_is_the_encoding_of_the_full_text(template: ChatTemplate) -> None:
    messages = [{"role": "system", "content": "a  b"}, {"role": "user", "content": "<|im_ in text, é"}]
    for _ in range(2):  # the second time from the cache
        assert list(template.first_prompt(messages, None)) == template.encode(template.render(messages, None, True))


def test_thinking_that_the_template_hides_later_does_not_prevent_continuation(tmp_path: Path) -> None:
    template = ChatTemplate.load(build_tiny_tokenizer(tmp_path, HIDES_OLD_THINKING))
    for role in ("user", "tool"):
        ids = template.continuation(
            [{"role": role, "content": "more"}], None, tools_key="", last_id=template.turn_end_id
        )
        assert template.decode(ids) == f"\n<|im_start|>{role}\nmore<|im_end|>\n<|im_start|>assistant\n"


def test_generation_tags_and_loop_controls_are_understood(tmp_path: Path) -> None:
    source = (
        "{% for m in messages %}{% if m.role == 'skip' %}{% continue %}{% endif %}{% generation %}"
        "<|im_start|>{{ m.role }}: {{ m.content }}<|im_end|>{% endgeneration %}{% endfor %}"
    )
    template = ChatTemplate.load(build_tiny_tokenizer(tmp_path, source))
    messages = [{"role": "skip", "content": ""}, {"role": "user", "content": "u"}]
    assert template.render(messages, None, False) == "<|im_start|>user: u<|im_end|>"


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("{% for m in %}", "does not compile"),
        ("{{ raise_exception('needs a system message') }}", "needs a system message"),
        ("{{ messages.clear() }}", "refused the conversation"),
        ("{{ ''.__class__.__mro__ }}", "refused the conversation"),
        ("{{ messages[0].content }}", "as a prefix of its continuation"),
        ("{{ messages | length }}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}", "as a prefix"),
        ("{% for m in messages %}[{{ m.content }}]{% endfor %}", "does not begin with a special token"),
    ],
)
def test_unusable_templates_are_refused_at_load(tmp_path: Path, source: str, complaint: str) -> None:
    folder = build_tiny_tokenizer(tmp_path, source)
    with pytest.raises(TemplateError, match=complaint) as caught:
        ChatTemplate.load(folder)
    assert str(tmp_path) in str(caught.value)


def test_a_template_that_rewrites_what_came_before_says_so_and_is_refused_when_it_does(tmp_path: Path) -> None:
    source = (
        "{% set users = messages | selectattr('role', 'equalto', 'user') | list %}"
        "{% for m in messages %}<|im_start|>{{ 'last ' if m == users[-1] }}{{ m.role }}\n"
        "{{ m.content }}<|im_end|>\n{% endfor %}"
    )
    template = ChatTemplate.load(build_tiny_tokenizer(tmp_path, source))
    assert template.rewrites_history == ("a user message follows",)
    with pytest.raises(HistoryRewritten, match=r"rewrites earlier turns when messages with roles \['user'\]"):
        template.continuation([{"role": "user", "content": "u"}], None, tools_key="", last_id=template.turn_end_id)


def test_a_template_that_ends_the_text_unless_it_asks_for_a_turn_can_be_continued(tmp_path: Path) -> None:
    """Phi's does."""
    source = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% else %}<|endoftext|>{% endif %}"
    )
    template = ChatTemplate.load(build_tiny_tokenizer(tmp_path, source))
    assert template.generation_prompt == "<|im_start|>assistant\n"
    ids = template.continuation([{"role": "user", "content": "u"}], None, tools_key="", last_id=template.turn_end_id)
    assert template.decode(ids) == "\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n"


def test_a_template_that_rewrites_only_long_conversations_is_refused_at_load(tmp_path: Path) -> None:
    """Nothing would notice it in the short one that a continuation is rendered with."""
    source = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ '(old)' if messages | length > 4 and loop.first }}"
        "{{ m.content }}<|im_end|>\n{% endfor %}"
    )
    folder = build_tiny_tokenizer(tmp_path, source)
    with pytest.raises(TemplateError, match="longer conversation differently when a user message follows"):
        ChatTemplate.load(folder)


def test_missing_files_are_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no model folder at .*nowhere"):
        ChatTemplate.load(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"has no tokenizer\.json; save"):
        ChatTemplate.load(tmp_path)
    folder = build_tiny_tokenizer(tmp_path / "model", chat_template=None)
    with pytest.raises(TemplateError, match=r"model has no chat template; put one into chat_template\.jinja"):
        ChatTemplate.load(folder)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match="is not a tokenizer file"):
        ChatTemplate.load(folder)


def test_hub_ids_come_from_the_hub_cache_and_a_missing_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    repository, revision = tmp_path / "models--someone--tiny", "0" * 40
    build_tiny_tokenizer(repository / "snapshots" / revision)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(revision)
    assert ChatTemplate.load("someone/tiny").turn_end == "<|im_end|>"
    with pytest.raises(UserError, match=r"hub model 'someone/absent' is neither in the local hub cache nor"):
        ChatTemplate.load("someone/absent")


def test_a_tokenizer_that_reads_text_differently_after_a_special_token_is_refused(tmp_path: Path) -> None:
    folder = build_tiny_tokenizer(tmp_path)
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    for token in tokenizer["added_tokens"]:
        token["rstrip"] = True
    file.write_text(json.dumps(tokenizer))
    with pytest.raises(TemplateError, match="reads a text differently after"):
        ChatTemplate.load(folder)


def test_a_template_that_tells_the_time_is_continued_over_midnight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock(datetime):
        day_now = 1

        @classmethod
        def now(cls, tz: Any = None) -> "Clock":
            return cls(2026, 1, cls.day_now)

    monkeypatch.setattr("drydock.chat.jinja_environment.datetime", Clock)
    source = "Today is {{ strftime_now('%d') }}." + HERMES_CHATML
    template = ChatTemplate.load(build_tiny_tokenizer(tmp_path, source))
    first = template.render([{"role": "user", "content": "u"}], None, True)
    Clock.day_now = 2
    assert template.render([{"role": "user", "content": "u"}], None, True) == first
    template.continuation([{"role": "user", "content": "u"}], None, tools_key="", last_id=template.turn_end_id)
