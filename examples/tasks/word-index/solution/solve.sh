#!/bin/bash
mkdir -p /app/tool
cat > /app/tool/index.py << 'END'
import re
import sys

lines = {}
for number, line in enumerate(open(sys.argv[1]), start=1):
    for word in re.findall(r"[a-z]+(?:'[a-z]+)*", line.lower()):
        if len(word) >= 4 and number not in lines.setdefault(word, []):
            lines[word].append(number)


def runs(numbers):
    run = []
    for n in [*numbers, None]:
        if run and n != run[-1] + 1:
            yield f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run))
            run = []
        run.append(n)


for word in sorted(lines):
    if len(lines[word]) > 1:
        print(f"{word}: {', '.join(runs(lines[word]))}")
END
python3 /app/tool/index.py /app/book.txt > /app/index.txt
