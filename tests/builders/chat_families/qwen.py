"""Qwen2.5 and Qwen3: ChatML with Hermes calls; Qwen3 shows the thinking of turns after the last user message only."""

from builders.chat_families.family import Calls, Family, json_text

_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_CALL_TAGS = ("<tool_call>", "</tool_call>")
_QWEN3_TAGS = (*_CALL_TAGS, "<tool_response>", "</tool_response>", "<think>", "</think>")

_HEAD = r"""
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{% else %}{{- DEFAULT }}{% endif %}
    {{- '# Tools\n\nCall functions as you need. Their signatures:\n<tools>' }}
    {%- for tool in tools %}
        {{- '\n' }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '\n</tools>\n\nWrite a call as\n<tool_call>\n{"name": <name>, "arguments": <object>}\n</tool_call>' }}
    {{- '<|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- elif DEFAULT %}
    {{- '<|im_start|>system\n' + DEFAULT + '<|im_end|>\n' }}
{%- endif %}
"""

_RESULT = r"""
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""

_CALL = r"""
                {{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
                {%- if call.function.arguments is string %}
                    {{- call.function.arguments }}
                {%- else %}
                    {{- call.function.arguments | tojson }}
                {%- endif %}
                {{- '}\n</tool_call>' }}
"""

_QWEN2_SOURCE = (
    "{%- set DEFAULT = 'You are a helpful assistant.' %}"
    + _HEAD
    + r"""
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant' }}
        {%- if message.content or not message.tool_calls %}
            {{- '\n' + message.content }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {{- '\n' }}
"""
    + _CALL
    + r"""
        {%- endfor %}
        {{- '<|im_end|>\n' }}
"""
    + _RESULT
)

_QWEN3_SOURCE = (
    "{%- set DEFAULT = '' %}"
    + _HEAD
    + r"""
{%- set seen = namespace(query=messages | length - 1, searching=true) %}
{%- for message in messages[::-1] %}
    {%- if seen.searching and message.role == 'user' and not (message.content.startswith('<tool_response>')
            and message.content.endswith('</tool_response>')) %}
        {%- set seen.searching = false %}
        {%- set seen.query = messages | length - 1 - loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set content = message.content %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > seen.query and (loop.last or reasoning) %}
            {{- '<|im_start|>assistant\n<think>\n' + reasoning.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else %}
            {{- '<|im_start|>assistant\n' + content }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {%- if content or not loop.first %}
                {{- '\n' }}
            {%- endif %}
"""
    + _CALL
    + r"""
        {%- endfor %}
        {{- '<|im_end|>\n' }}
"""
    + _RESULT
)


def _hermes(content: str, calls: Calls) -> str:
    blocks = [
        f'<tool_call>\n{{"name": "{name}", "arguments": {json_text(arguments)}}}\n</tool_call>'
        for name, arguments in calls
    ]
    return "\n".join([*([content] if content else []), *blocks])


def qwen2_reply_text(content: str, calls: Calls, reasoning: str) -> str:
    """Qwen2.5 does not think apart; `reasoning` must be empty."""
    assert not reasoning
    return _hermes(content, calls)


def qwen3_reply_text(content: str, calls: Calls, reasoning: str) -> str:
    """Thinking, if any, in a block of its own before the rest."""
    return (f"<think>\n{reasoning}\n</think>\n\n" if reasoning else "") + _hermes(content, calls)


QWEN2 = Family(
    name="qwen2.5",
    source=_QWEN2_SOURCE,
    special=_SPECIAL,
    added=_CALL_TAGS,
    eos="<|im_end|>",
    ends=("<|im_end|>", "<|endoftext|>"),
    reply_text=qwen2_reply_text,
    stop="<|im_end|>",
    call_stop="<|im_end|>",
)
QWEN3 = Family(
    name="qwen3",
    source=_QWEN3_SOURCE,
    special=_SPECIAL,
    added=_QWEN3_TAGS,
    eos="<|im_end|>",
    ends=("<|im_end|>", "<|endoftext|>"),
    reply_text=qwen3_reply_text,
    stop="<|im_end|>",
    call_stop="<|im_end|>",
    thinks=True,
)
