"""Writes reward.json."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

RIGHT = Path("/tests/textwrap2.py").read_text()


def passes(module):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "textwrap2.py").write_text(module)
        shutil.copy("/app/test_textwrap2.py", folder)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_textwrap2.py"]
        try:
            return subprocess.run(command, cwd=folder, capture_output=True, timeout=20).returncode == 0
        except subprocess.TimeoutExpired:
            return False


mutants = []
for line in Path("/tests/mutants.txt").read_text().splitlines():
    old, new = line.replace("\\n", chr(10)).split("|")
    assert RIGHT.count(old) == 1, old
    mutants.append(RIGHT.replace(old, new))
right = Path("/app/test_textwrap2.py").exists() and passes(RIGHT)
found = sum(not passes(mutant) for mutant in mutants) if right else 0
with open("/logs/verifier/reward.json", "w") as file:
    json.dump({"reward": found / len(mutants), "right": right, "found": found}, file)
