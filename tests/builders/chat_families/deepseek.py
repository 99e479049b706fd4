"""DeepSeek V3.1: arguments as JSON texts, no prompt of its own after a tool result, thinking cut out of the history."""

from builders.chat_families.family import Calls, Family, json_text

_SOURCE = r"""
{%- if not thinking is defined %}
    {%- set thinking = false %}
{%- endif %}
{%- set state = namespace(system='', user=false, tool=false) %}
{%- for message in messages if message.role == 'system' %}
    {%- set state.system = state.system + ('\n\n' if state.system else '') + message.content %}
{%- endfor %}
{%- if tools %}
    {%- set state.system = state.system + '\n\n## Tools\nFunctions that you may call:\n' %}
    {%- for tool in tools %}
        {%- set state.system = state.system + '\n### ' + tool.function.name + '\nParameters: '
            + tool.function.parameters | tojson + '\n' %}
    {%- endfor %}
{%- endif %}
{{- bos_token + state.system }}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {%- set state.tool = false %}
        {%- set state.user = true %}
        {{- '<｜User｜>' + message.content }}
    {%- elif message.role == 'assistant' %}
        {%- if state.user %}
            {{- '<｜Assistant｜></think>' }}
        {%- endif %}
        {%- set content = message.content or '' %}
        {%- if message.tool_calls is defined %}
            {{- content + '<｜tool▁calls▁begin｜>' }}
            {%- for call in message.tool_calls %}
                {{- '<｜tool▁call▁begin｜>' + call.function.name + '<｜tool▁sep｜>' + call.function.arguments }}
                {{- '<｜tool▁call▁end｜>' }}
            {%- endfor %}
            {{- '<｜tool▁calls▁end｜>' }}
        {%- elif not state.tool and '</think>' in content %}
            {{- content.split('</think>', 1)[1] }}
        {%- else %}
            {{- content }}
        {%- endif %}
        {{- '<｜end▁of▁sentence｜>' }}
        {%- set state.user = false %}
        {%- set state.tool = false %}
    {%- elif message.role == 'tool' %}
        {%- set state.user = false %}
        {%- set state.tool = true %}
        {{- '<｜tool▁output▁begin｜>' + message.content + '<｜tool▁output▁end｜>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt and state.user and not state.tool %}
    {{- '<｜Assistant｜>' + ('<think>' if thinking else '</think>') }}
{%- endif %}
"""


def reply_text(content: str, calls: Calls, reasoning: str) -> str:
    """Without thinking."""
    assert not reasoning
    written = [
        f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{json_text(arguments)}<｜tool▁call▁end｜>"
        for name, arguments in calls
    ]
    return content + (f"<｜tool▁calls▁begin｜>{''.join(written)}<｜tool▁calls▁end｜>" if calls else "")


def thinking_reply_text(content: str, calls: Calls, reasoning: str) -> str:
    """Begins inside the thinking block that the generation prompt opened; no calls in this mode."""
    assert not calls
    return f"{reasoning}</think>{content}"


def _family(name: str, *, thinking: bool) -> Family:
    return Family(
        name=name,
        source=_SOURCE.replace("thinking = false", "thinking = true") if thinking else _SOURCE,
        special=("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
        added=(
            "<｜User｜>",
            "<｜Assistant｜>",
            "<think>",
            "</think>",
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁calls▁end｜>",
            "<｜tool▁call▁begin｜>",
            "<｜tool▁call▁end｜>",
            "<｜tool▁sep｜>",
            "<｜tool▁output▁begin｜>",
            "<｜tool▁output▁end｜>",
        ),
        eos="<｜end▁of▁sentence｜>",
        ends=("<｜end▁of▁sentence｜>",),
        reply_text=thinking_reply_text if thinking else reply_text,
        stop="<｜end▁of▁sentence｜>",
        call_stop="<｜end▁of▁sentence｜>",
        bos="<｜begin▁of▁sentence｜>",
        calls=0 if thinking else 3,
        thinks=thinking,
    )


DEEPSEEK = _family("deepseek3.1", thinking=False)
DEEPSEEK_THINKING = _family("deepseek3.1-thinking", thinking=True)
