"""On which line of a TOML document a value stands, which neither tomllib nor pydantic says."""

import re
from collections.abc import Sequence


def line_of(text: str, location: Sequence[str | int]) -> int:
    """The line, from 1, on which the TOML document `text` gives the value at `location`; as near as it can be told.

    location: keys, and indices of arrays of tables. The line of the innermost table or key that is written out.
    """
    best, depth = 1, 0
    table: tuple[str | int, ...] = ()
    counts: dict[tuple[str | int, ...], int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*(\[\[?)\s*([\w.\"' -]+?)\s*\]", line):
            table = tuple(part.strip(" \"'") for part in header[2].split("."))
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            elif table[:1] in counts:
                table = (table[0], counts[table[:1]], *table[1:])
            path = table
        elif key := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            path = (*table, *(part.strip("\"'") for part in key[1].split(".")))
        else:
            continue
        if len(path) > depth and tuple(location[: len(path)]) == path:
            best, depth = number, len(path)
    return best
