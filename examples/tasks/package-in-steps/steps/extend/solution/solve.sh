#!/bin/bash
cat > /app/slug/__init__.py << 'END'
import re
import unicodedata


def slugify(text, longest=None):
    plain = unicodedata.normalize("NFKD", text.casefold())
    kept = "".join(letter for letter in plain if not unicodedata.combining(letter))
    whole = re.sub("[^a-z0-9]+", "-", kept).strip("-")
    if longest is None or len(whole) <= longest:
        return whole
    cut = whole[: longest + 1].rfind("-")
    return whole[:cut] if cut > 0 else whole[:longest]


def unique(texts):
    slugs = [slugify(text) or "item" for text in texts]
    taken = set(slugs)
    seen = set()
    result = []
    for slug in slugs:
        name, number = slug, 2
        while name in seen or (name != slug and name in taken):
            name = f"{slug}-{number}"
            number += 1
        seen.add(name)
        result.append(name)
    return result
END
