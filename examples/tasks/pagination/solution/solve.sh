#!/bin/bash
cd /app
sed -i 's|return total // size + 1|return max(1, -(-total // size))|' pages.py
sed -i 's,number \* size - 1\],number * size],' pages.py
sed -i 's|range(1, count) if|range(1, count + 1) if|' pages.py
python3 - << 'END'
from pathlib import Path

file = Path("/app/pages.py")
old = "        if result and n - result[-1] > 1:\n            result.append(None)\n"
new = "        if result and n - result[-1] > 1:\n            result.append(n - 1 if n - result[-1] == 2 else None)\n"
text = file.read_text()
assert old in text
file.write_text(text.replace(old, new))
END
