"""Gemma 3: no system role (it goes into the first user message), strict alternation, no tools."""

from builders.chat_families.family import Calls, Family

_SOURCE = r"""
{{- bos_token }}
{%- if messages[0].role == 'system' %}
    {%- set before = messages[0].content + '\n\n' %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set before = '' %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' }}
    {{- (before if loop.first else '') + message.content | trim + '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<start_of_turn>model\n' }}
{%- endif %}
"""


def reply_text(content: str, calls: Calls, reasoning: str) -> str:
    """Text alone."""
    assert not calls
    assert not reasoning
    return content


GEMMA = Family(
    name="gemma3",
    source=_SOURCE,
    special=("<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"),
    added=("\n\n", "  ", "<table>"),
    eos="<eos>",
    ends=("<eos>", "<end_of_turn>"),
    reply_text=reply_text,
    stop="<end_of_turn>",
    call_stop="<end_of_turn>",
    bos="<bos>",
    calls=0,
)
