"""Whether this machine can run the local sandbox, for tests that need it."""

import pytest

from drydock.sandbox.requirements import check_local

MISSING = [requirement for requirement in check_local() if not requirement.ok]
"""What the machine lacks, with the reason of each."""

needs_sandbox = pytest.mark.skipif(bool(MISSING), reason="; ".join(f"{one.name}: {one.detail}" for one in MISSING))
