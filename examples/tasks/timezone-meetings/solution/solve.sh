#!/bin/bash
cd /app
python3 - << 'END'
from pathlib import Path

file = Path("meetings.py")
text = file.read_text()
text = text.replace(
    '''    start = first.replace(tzinfo=ZoneInfo(zone)).astimezone(timezone.utc)
    return [start + timedelta(weeks=n) for n in range(count)]
''',
    '''    place = ZoneInfo(zone)
    return [(first + timedelta(weeks=n)).replace(tzinfo=place, fold=0).astimezone(timezone.utc) for n in range(count)]
''')
text = text.replace('instant.strftime', 'instant.astimezone(ZoneInfo(zone)).strftime')
text = text.replace(
    '''    a_end = a_start''', '''    a_start, b_start = a_start.astimezone(timezone.utc), b_start.astimezone(timezone.utc)
    a_end = a_start''')
text = text.replace("str(a_start) <= str(b_end) and str(b_start) <= str(a_end)", "a_start < b_end and b_start < a_end")
file.write_text(text)
END
