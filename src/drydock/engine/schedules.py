"""The learning rate of a step as a pure function of the number of steps taken before it.

With n steps taken, w warm-up steps, T total steps, m the lowest ratio, p = min(1, (n - w) / (T - w)):

    n < w      (n + 1) / w
    constant   1
    linear     m + (1 - m) (1 - p)
    cosine     m + (1 - m) (1 + cos(pi p)) / 2        SGDR without restarts, arXiv 1608.03983, eq. 5

The first step of a warm-up is not lost to a rate of 0, and the last one has the full rate.
"""

import math

from drydock.engine.optimizer_settings import ScheduleConfig


def rate_factor(schedule: ScheduleConfig, steps_taken: int) -> float:
    """What the optimizer's `lr` is multiplied by for the step that follows `steps_taken` others."""
    if steps_taken < schedule.warmup_steps:
        return (steps_taken + 1) / schedule.warmup_steps
    if schedule.name == "constant" or schedule.total_steps is None:
        return 1.0
    done = min(1.0, (steps_taken - schedule.warmup_steps) / (schedule.total_steps - schedule.warmup_steps))
    height = 1.0 - done if schedule.name == "linear" else (1.0 + math.cos(math.pi * done)) / 2.0
    return schedule.min_lr_ratio + (1.0 - schedule.min_lr_ratio) * height
