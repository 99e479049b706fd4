"""Wraps text."""


def wrap(text, width, indent=""):
    """Lines of at most `width` characters; a longer word stands alone. Lines after the first begin with `indent`.

    Runs of blanks count as one. An empty text gives no lines. A width below 1 raises ValueError.
    """
    if width < 1:
        raise ValueError("width must be at least 1")
    lines = []
    line = ""
    for word in text.split():
        prefix = indent if lines else ""
        if not line:
            line = prefix + word
        elif len(line) + 1 + len(word) <= width:
            line += " " + word
        else:
            lines.append(line)
            line = indent + word
    if line:
        lines.append(line)
    return lines
