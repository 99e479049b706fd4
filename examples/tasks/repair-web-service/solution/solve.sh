#!/bin/bash
set -e
cd /app
python3 - << 'END'
from pathlib import Path

file = Path("todo.py")
text = file.read_text()


def change(old, new, count=1):
    global text
    assert text.count(old) == count, old
    text = text.replace(old, new)


change("import json\n", "import itertools\nimport json\n")
change("lock = threading.Lock()\n", "lock = threading.Lock()\nids = itertools.count(1)\n")
change("        lock.acquire()\n        body = self.body()\n", "        body = self.body()\n        if body is None:\n            self.answer(400, {\"error\": \"no JSON\"})\n            return\n        lock.acquire()\n", 2)
change("len(tasks) + 1", "next(ids)")
change("bool(task[\"done\"]) == bool(done)", "task[\"done\"] == (done[-1] == \"true\")")
change("            self.answer(200, tasks.get(self.task_id()))", "            self.found(tasks.get(self.task_id()))")
change("        self.answer(200, tasks.pop(self.task_id(), None))", "        self.found(tasks.pop(self.task_id(), None))")
change(
    "        return json.loads(self.rfile.read(size).decode(\"latin-1\"))",
    "        try:\n            return json.loads(self.rfile.read(size).decode())\n        except ValueError:\n            return None",
)
change(
    "    def task_id(self):",
    "    def found(self, task):\n        if task is None:\n            self.answer(404, {\"error\": \"no such task\"})\n"
    "        else:\n            self.answer(200, task)\n\n    def task_id(self):",
)
file.write_text(text)
END
./ctl stop
