#!/bin/bash
cd /app
sed -i 's/\bcalc\b/area_of/g; s/s=shape/shape/; s/area_of(s)/area_of(shape)/' report.py README.md shapes/cache.py shapes/area.py
sed -i 's/match s:/match shape:/; s/{s!r}/{shape!r}/' shapes/area.py
cat >> shapes/area.py << 'END'


def calc(s):
    """The old name of area_of."""
    warnings.warn("calc is deprecated, use area_of", DeprecationWarning, stacklevel=2)
    return area_of(s)
END
sed -i '2i import warnings' shapes/area.py
sed -i '2i\' shapes/area.py
cat > shapes/__init__.py << 'END'
"""Shapes."""

from shapes.area import area_of, calc
from shapes.cache import recalc

__all__ = ["area_of", "calc", "recalc"]
END
