"""Llama 3.1: header tokens, one JSON call a turn, results from `ipython`, tools in the first user message."""

from builders.chat_families.family import Calls, Family, json_text

_SOURCE = r"""
{{- bos_token }}
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = '' %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\n\n' }}
{%- if tools %}
    {{- 'Environment: ipython\n' }}
{%- endif %}
{{- 'Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n' + system + '<|eot_id|>' }}
{%- if tools %}
    {%- if not messages %}
        {{- raise_exception('Tools are told in the first user message, and there is none.') }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\nAnswer with a JSON call of one of these functions, in the form ' }}
    {{- '{"name": <name>, "parameters": <object>}.\n\n' }}
    {%- for tool in tools %}
        {{- tool | tojson(indent=4) }}
        {{- '\n\n' }}
    {%- endfor %}
    {{- messages[0].content | trim + '<|eot_id|>' }}
    {%- set messages = messages[1:] %}
{%- endif %}
{%- for message in messages %}
    {%- if message.role in ['ipython', 'tool'] %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\n\n' }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if message.tool_calls | length != 1 %}
            {{- raise_exception('This model only supports single tool-calls at once!') }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
        {{- '{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}
        {{- '}<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""


def reply_text(content: str, calls: Calls, reasoning: str) -> str:
    """A call or a text; several calls stand on one line as models write them, though the template renders one only."""
    assert not reasoning
    written = [f'{{"name": "{name}", "parameters": {json_text(arguments)}}}' for name, arguments in calls]
    return content + "; ".join(written)


LLAMA = Family(
    name="llama3.1",
    source=_SOURCE,
    special=(
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eom_id|>",
        "<|eot_id|>",
        "<|python_tag|>",
    ),
    added=(),
    eos="<|eot_id|>",
    ends=("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"),
    reply_text=reply_text,
    stop="<|eot_id|>",
    call_stop="<|eot_id|>",
    bos="<|begin_of_text|>",
    calls=1,
)
