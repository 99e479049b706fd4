"""gpt-oss: Harmony channels; a turn ends in <|return|> or <|call|>, and in <|end|> once it is history."""

from builders.chat_families.family import Calls, Family, json_text

_SOURCE = r"""
{{- '<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n' }}
{{- 'Current date: ' + strftime_now('%Y-%m-%d') + '\n\nReasoning: medium\n\n' }}
{{- '# Valid channels: analysis, commentary, final. Channel must be included for every message.' }}
{%- if tools %}
    {{- "\nCalls to these tools must go to the commentary channel: 'functions'." }}
{%- endif %}
{{- '<|end|>' }}
{%- if messages[0].role in ['developer', 'system'] %}
    {%- set instructions = messages[0].content %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set instructions = '' %}
{%- endif %}
{%- if instructions or tools %}
    {{- '<|start|>developer<|message|>' }}
    {%- if instructions %}
        {{- '# Instructions\n\n' + instructions }}
    {%- endif %}
    {%- if tools %}
        {{- '\n\n# Tools\n\n## functions\n\nnamespace functions {\n\n' }}
        {%- for tool in tools %}
            {{- 'type ' + tool.function.name + ' = (_: ' + tool.function.parameters | tojson + ') => any;\n\n' }}
        {%- endfor %}
        {{- '} // namespace functions' }}
    {%- endif %}
    {{- '<|end|>' }}
{%- endif %}
{%- set last = namespace(call=none) %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {%- if '<|channel|>' in message.content %}
            {{- raise_exception('Pass the text of a channel, not its markers.') }}
        {%- endif %}
        {%- if 'tool_calls' in message %}
            {%- set later = namespace(final=false) %}
            {%- for other in messages[loop.index:] if other.role == 'assistant' and 'tool_calls' not in other %}
                {%- set later.final = true %}
            {%- endfor %}
            {%- set call = message.tool_calls[0].function %}
            {%- if message.content and message.thinking %}
                {{- raise_exception('A message with calls has either content or thinking, not both.') }}
            {%- endif %}
            {%- if (message.content or message.thinking) and not later.final %}
                {{- '<|start|>assistant<|channel|>analysis<|message|>' + (message.content or message.thinking) }}
                {{- '<|end|>' }}
            {%- endif %}
            {{- '<|start|>assistant to=functions.' + call.name + '<|channel|>commentary json<|message|>' }}
            {{- call.arguments | tojson }}
            {{- '<|call|>' }}
            {%- set last.call = call.name %}
        {%- elif loop.last and not add_generation_prompt %}
            {%- if message.thinking %}
                {{- '<|start|>assistant<|channel|>analysis<|message|>' + message.thinking + '<|end|>' }}
            {%- endif %}
            {{- '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|return|>' }}
        {%- else %}
            {{- '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|end|>' }}
            {%- set last.call = none %}
        {%- endif %}
    {%- elif message.role == 'tool' %}
        {%- if last.call is none %}
            {{- raise_exception('A tool message without a call before it.') }}
        {%- endif %}
        {{- '<|start|>functions.' + last.call + ' to=assistant<|channel|>commentary<|message|>' }}
        {{- message.content | tojson }}
        {{- '<|end|>' }}
    {%- elif message.role == 'user' %}
        {{- '<|start|>user<|message|>' + message.content + '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant' }}
{%- endif %}
"""


def reply_text(content: str, calls: Calls, reasoning: str) -> str:
    """Analysis, then a final message, or a preamble in commentary and a call. One call a turn."""
    parts = [f"<|channel|>analysis<|message|>{reasoning}"] if reasoning else []
    if calls:
        ((name, arguments),) = calls
        if content:
            parts.append(f"<|channel|>commentary<|message|>{content}")
        parts.append(f" to=functions.{name}<|channel|>commentary json<|message|>{json_text(arguments)}")
    else:
        parts.append(f"<|channel|>final<|message|>{content}")
    return "<|end|><|start|>assistant".join(parts)


HARMONY = Family(
    name="gpt-oss",
    source=_SOURCE,
    special=(
        "<|startoftext|>",
        "<|endoftext|>",
        "<|return|>",
        "<|constrain|>",
        "<|channel|>",
        "<|start|>",
        "<|end|>",
        "<|message|>",
        "<|call|>",
    ),
    added=(),
    eos="<|return|>",
    ends=("<|return|>", "<|endoftext|>", "<|call|>"),
    reply_text=reply_text,
    stop="<|return|>",
    call_stop="<|call|>",
    calls=1,
    thinks=True,
)
