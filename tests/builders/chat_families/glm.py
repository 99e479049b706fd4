"""GLM-4.5 and 4.6: a turn has no end token of its own, the token of the next role ends it."""

from builders.chat_families.family import Calls, Family, json_text

_SOURCE = r"""[gMASK]<sop>
{%- if tools %}
    {{- '<|system|>\n# Tools\n\nFunctions that you may call:\n<tools>\n' }}
    {%- for tool in tools %}
        {{- tool | tojson(ensure_ascii=False) + '\n' }}
    {%- endfor %}
    {{- '</tools>\n\nWrite a call as\n<tool_call>{name}\n<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n' }}
    {{- '</tool_call>' }}
{%- endif %}
{%- set seen = namespace(user=-1) %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {%- set seen.user = loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- '<|user|>\n' + message.content }}
    {%- elif message.role == 'assistant' %}
        {{- '<|assistant|>' }}
        {%- set content = message.content %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > seen.user and reasoning %}
            {{- '\n<think>' + reasoning.strip() + '</think>' }}
        {%- else %}
            {{- '\n<think></think>' }}
        {%- endif %}
        {%- if content.strip() %}
            {{- '\n' + content.strip() }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {{- '\n<tool_call>' + call.function.name + '\n' }}
            {%- for key, value in call.function.arguments.items() %}
                {{- '<arg_key>' + key + '</arg_key>\n<arg_value>' }}
                {{- value if value is string else value | tojson(ensure_ascii=False) }}
                {{- '</arg_value>\n' }}
            {%- endfor %}
            {{- '</tool_call>' }}
        {%- endfor %}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}
            {{- '<|observation|>' }}
        {%- endif %}
        {{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
    {%- elif message.role == 'system' %}
        {{- '<|system|>\n' + message.content }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>' }}
{%- endif %}
"""


def reply_text(content: str, calls: Calls, reasoning: str) -> str:
    """A thinking block always comes first, empty or not."""
    written = f"\n<think>{reasoning}</think>" + (f"\n{content}" if content else "")
    for name, arguments in calls:
        written += f"\n<tool_call>{name}\n"
        for key, value in arguments.items():
            text = value if isinstance(value, str) else json_text(value)
            written += f"<arg_key>{key}</arg_key>\n<arg_value>{text}</arg_value>\n"
        written += "</tool_call>"
    return written


GLM = Family(
    name="glm4.6",
    source=_SOURCE,
    special=("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
    added=(
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<tool_response>",
        "</tool_response>",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
    ),
    eos="<|endoftext|>",
    ends=("<|endoftext|>", "<|user|>", "<|observation|>"),
    reply_text=reply_text,
    stop="<|user|>",
    call_stop="<|observation|>",
    thinks=True,
)
