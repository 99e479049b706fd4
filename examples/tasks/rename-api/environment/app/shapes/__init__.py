"""Shapes."""

from shapes.area import calc
from shapes.cache import recalc

__all__ = ["calc", "recalc"]
