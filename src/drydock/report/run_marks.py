"""Sentences of a run's log that say where the run is: the run writes them, `drydock monitor` reads them."""

STEPS = "steps in this run:"
"""Followed by their number; written when the steps are about to begin, also of a run that goes on."""

FINISHED = "the run is at its end"
STOPPED = "the run was stopped"

FAILED = "the run failed"
"""Followed by a colon and the cause, then by its traceback."""
