"""What a run writes into its folder about itself: its configuration, its process, its log."""

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from drydock.report.driver_process import DriverProcess
from drydock.report.progress import RunProgress
from drydock.report.run_marks import FAILED, FINISHED, STOPPED
from drydock.training.run_folder import RunFolder
from drydock.training.stopping import single_cause

log = logging.getLogger(__name__)


@contextmanager
def logged_run(folder: RunFolder, config: str) -> Iterator[None]:
    """Run the block as the run of the folder: its configuration and process id there, how it failed in its log."""
    folder.config.write_text(config)
    driver = DriverProcess.this()
    if driver is not None:
        driver.write(folder.launcher)
    folder.launcher_pid.write_text(f"{os.getpid()}\n")
    _open_log(folder)
    try:
        yield
    except asyncio.CancelledError:
        log.warning(STOPPED)
        raise
    except Exception as error:
        log.exception("%s: %s", FAILED, " ".join(str(single_cause(error)).split()))
        raise
    else:
        log.info(FINISHED)
    finally:
        folder.launcher_pid.unlink(missing_ok=True)
        folder.launcher.unlink(missing_ok=True)


def _open_log(folder: RunFolder) -> None:
    """Have the package's log go to the run's file."""
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
