#!/bin/bash
set -e
mkdir /app/slug
cat > /app/slug/__init__.py << 'END'
import re
import unicodedata


def slugify(text):
    plain = unicodedata.normalize("NFKD", text.casefold())
    kept = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return re.sub("[^a-z0-9]+", "-", kept).strip("-")
END
# The author is no member of the group, but the folder's group can be inherited: root made /app with it.
chmod 775 /app/slug
chmod 664 /app/slug/__init__.py
