"""Mistral Small 3: [INST] markers, tools told before the last user message, call ids of nine characters."""

from builders.chat_families.family import Calls, Family, json_text

_SOURCE = r"""
{{- bos_token }}
{%- if messages[0].role == 'system' %}
    {{- '[SYSTEM_PROMPT]' + messages[0].content + '[/SYSTEM_PROMPT]' }}
    {%- set messages = messages[1:] %}
{%- else %}
    {{- '[SYSTEM_PROMPT]You are a helpful assistant.[/SYSTEM_PROMPT]' }}
{%- endif %}
{%- set users = messages | selectattr('role', 'equalto', 'user') | list %}
{%- set turns = namespace(count=0) %}
{%- for message in messages if message.role != 'tool' and not message.get('tool_calls') %}
    {%- if (message.role == 'user') != (turns.count % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- set turns.count = turns.count + 1 %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {%- if tools and message == users[-1] %}
            {{- '[AVAILABLE_TOOLS] [' }}
            {%- for tool in tools %}
                {{- tool | tojson }}
                {{- '' if loop.last else ', ' }}
            {%- endfor %}
            {{- '][/AVAILABLE_TOOLS]' }}
        {%- endif %}
        {{- '[INST]' + message.content + '[/INST]' }}
    {%- elif message.tool_calls is defined %}
        {{- '[TOOL_CALLS] [' }}
        {%- for call in message.tool_calls %}
            {%- if call.id | length != 9 %}
                {{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}
            {%- endif %}
            {{- (call.function | tojson)[:-1] + ', "id": "' + call.id + '"}' }}
            {{- ']' + eos_token if loop.last else ', ' }}
        {%- endfor %}
    {%- elif message.role == 'assistant' %}
        {{- message.content + eos_token }}
    {%- elif message.role == 'tool' %}
        {%- if message.tool_call_id | length != 9 %}
            {{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}
        {%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content + ', "call_id": "' + message.tool_call_id + '"}' }}
        {{- '[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception('Only user and assistant roles are supported, and a system message at the beginning.') }}
    {%- endif %}
{%- endfor %}
"""


def reply_text(content: str, calls: Calls, reasoning: str) -> str:
    """Content or calls; the ids of calls are given by whoever reads them."""
    assert not reasoning
    if not calls:
        return content
    assert not content
    return "[TOOL_CALLS] " + json_text([{"name": name, "arguments": arguments} for name, arguments in calls])


MISTRAL = Family(
    name="mistral",
    source=_SOURCE,
    special=(
        "<unk>",
        "<s>",
        "</s>",
        "[INST]",
        "[/INST]",
        "[AVAILABLE_TOOLS]",
        "[/AVAILABLE_TOOLS]",
        "[TOOL_RESULTS]",
        "[/TOOL_RESULTS]",
        "[TOOL_CALLS]",
        "[SYSTEM_PROMPT]",
        "[/SYSTEM_PROMPT]",
    ),
    added=(),
    eos="</s>",
    ends=("</s>",),
    reply_text=reply_text,
    stop="</s>",
    call_stop="</s>",
    bos="<s>",
)
