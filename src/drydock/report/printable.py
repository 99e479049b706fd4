"""Text that may hold anything, for a terminal."""


def printable(text: str) -> str:
    """`text` with control characters (a terminal would obey them) as pictures; tabs and line breaks stay."""
    return text.translate(_PICTURES)


_PICTURES = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)} | {0x7F: 0x2421}
_PICTURES |= dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
