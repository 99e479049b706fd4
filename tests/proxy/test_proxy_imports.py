import subprocess
import sys

PROGRAM = """
import pkgutil, sys
import drydock.proxy
for module in pkgutil.walk_packages(drydock.proxy.__path__, "drydock.proxy."):
    __import__(module.name)
print(sorted({"torch", "transformers", "openhands", "harbor", "huggingface_hub"} & set(sys.modules)))
"""


def test_the_proxy_imports_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
