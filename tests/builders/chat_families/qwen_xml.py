"""Qwen3.5: XML calls as Qwen3-Coder writes them, and thinking that the generation prompt opens."""

from builders.chat_families.family import Calls, Family, json_text

_SOURCE = r"""
{%- if tools %}
    {{- '<|im_start|>system\n# Tools\n\nFunctions that you may call:\n\n<tools>' }}
    {%- for tool in tools %}
        {{- '\n' }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '\n</tools>\n\nWrite a call as\n\n<tool_call>\n<function=name>\n<parameter=key>\nvalue\n</parameter>\n' }}
    {{- '</function>\n</tool_call>' }}
    {%- if messages[0].role == 'system' and messages[0].content | trim %}
        {{- '\n\n' + messages[0].content | trim }}
    {%- endif %}
    {{- '<|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content | trim + '<|im_end|>\n' }}
{%- endif %}
{%- set seen = namespace(query=-1) %}
{%- for message in messages %}
    {%- set content = message.content | trim %}
    {%- if message.role == 'user' and not (content.startswith('<tool_response>')
            and content.endswith('</tool_response>')) %}
        {%- set seen.query = loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- if seen.query < 0 %}
    {{- raise_exception('No user query found in messages.') }}
{%- endif %}
{%- for message in messages %}
    {%- set content = (message.content or '') | trim %}
    {%- if message.role == 'system' %}
        {%- if not loop.first %}
            {{- raise_exception('System message must be at the beginning.') }}
        {%- endif %}
    {%- elif message.role == 'user' %}
        {{- '<|im_start|>user\n' + content + '<|im_end|>\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\n' }}
        {%- if loop.index0 > seen.query %}
            {{- '<think>\n' + reasoning | trim + '\n</think>\n\n' }}
        {%- endif %}
        {{- content }}
        {%- for call in message.tool_calls or [] %}
            {%- if not loop.first %}
                {{- '\n' }}
            {%- elif content %}
                {{- '\n\n' }}
            {%- endif %}
            {{- '<tool_call>\n<function=' + call.function.name + '>\n' }}
            {%- for key, value in call.function.arguments | items %}
                {{- '<parameter=' + key + '>\n' }}
                {%- if value is mapping or (value is sequence and value is not string) %}
                    {{- value | tojson }}
                {%- else %}
                    {{- value | string }}
                {%- endif %}
                {{- '\n</parameter>\n' }}
            {%- endfor %}
            {{- '</function>\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.previtem and loop.previtem.role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' + content + '\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n<think>\n' }}
{%- endif %}
"""


def _value(value: object) -> str:
    return json_text(value) if isinstance(value, dict | list) else str(value)


def reply_text(content: str, calls: Calls, reasoning: str) -> str:
    """Begins inside the thinking block that the generation prompt opened."""
    blocks = [
        f"<tool_call>\n<function={name}>\n"
        + "".join(f"<parameter={key}>\n{_value(value)}\n</parameter>\n" for key, value in arguments.items())
        + "</function>\n</tool_call>"
        for name, arguments in calls
    ]
    return f"{reasoning}\n</think>\n\n{content}" + ("\n\n" if content and calls else "") + "\n".join(blocks)


QWEN_XML = Family(
    name="qwen3.5",
    source=_SOURCE,
    special=("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    added=("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"),
    eos="<|im_end|>",
    ends=("<|im_end|>", "<|endoftext|>"),
    reply_text=reply_text,
    stop="<|im_end|>",
    call_stop="<|im_end|>",
    thinks=True,
)
