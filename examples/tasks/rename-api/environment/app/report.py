"""Prints the areas of some shapes."""

import shapes
from shapes.area import calc

LABEL = "calculated"

for shape in [("square", 3), ("rectangle", 2, 5)]:
    assert shapes.calc(shape) == shapes.recalc(shape)
    print(LABEL, shape[0], calc(shape))
