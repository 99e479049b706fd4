"""The text that the model reads after a command.

Warm-start data must show exactly the same text, so whoever writes expert conversations calls this too.
"""


def cut_middle(text: str, max_chars: int) -> str:
    """Keep the first and the last half of `max_chars` characters, and say between them how many are missing."""
    if len(text) <= max_chars:
        return text
    tail = max_chars // 2
    head = max_chars - tail
    left_out = len(text) - head - tail
    return f"{text[:head]}\n[... {left_out} characters left out ...]\n{text[len(text) - tail :]}"


def render_output(output: str, exit_code: int, max_chars: int) -> str:
    """Show a command that ended: its output, and the exit code when it is not 0."""
    text = cut_middle(output.rstrip("\n"), max_chars)
    if exit_code != 0:
        return f"{text}\n[exit code {exit_code}]" if text else f"[exit code {exit_code}]"
    return text or "[no output]"


def render_stopped(output: str, timeout_s: float, max_chars: int) -> str:
    """Show a command that ran into its time limit: what it printed until then, and a note."""
    text = cut_middle(output.rstrip("\n"), max_chars)
    note = f"[stopped: the command ran longer than {timeout_s:g} s]"
    return f"{text}\n{note}" if text else note
