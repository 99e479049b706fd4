"""What a run writes into its folder about itself: its configuration, its process, its log."""

import logging
import os

from drydock.report.progress import RunProgress
from drydock.training.run_folder import RunFolder

log = logging.getLogger(__name__)


def open_log(folder: RunFolder, config: str) -> None:
    """Write the resolved configuration and the process id, and have the package's log go to the run's file."""
    folder.config.write_text(config)
    folder.launcher_pid.write_text(f"{os.getpid()}\n")
    handler = logging.FileHandler(folder.log)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("drydock")
    logger.setLevel(logging.INFO)
    for old in logger.handlers[:]:
        logger.removeHandler(old)
        old.close()
    logger.addHandler(handler)
    logger.propagate = False


def note_stopped(folder: RunFolder, signal_name: str, progress: RunProgress) -> None:
    """Say, in the log and to the user, that a signal ended the run, and where what it left is."""
    log.info("stopped by %s", signal_name)
    if folder.log.exists():
        progress.note(f"stopped by {signal_name}; what there is: {folder.root}")
