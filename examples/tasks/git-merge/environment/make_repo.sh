# Builds the repository, with the same commits each time.
set -e
git config --system user.name 'Ann Lee'
git config --system user.email ann@example.org
git config --system init.defaultBranch main
git config --system advice.detachedHead false
day=1
commit() {
  git add -A
  export GIT_AUTHOR_DATE="2024-01-$(printf %02d $day)T12:00:00Z" GIT_COMMITTER_DATE="2024-01-$(printf %02d $day)T12:00:00Z"
  git commit -q -m "$1"
  day=$((day + 1))
}
git init -q /app/repo
cd /app/repo
cat > shop.py << 'END'
"""Prices in euros."""


def total(items):
    """The sum of (count, price) pairs."""
    return sum(count * price for count, price in items)
END
cat > test_shop.py << 'END'
from shop import total


def test_sum():
    assert total([(2, 1.5), (1, 3)]) == 6
END
printf '# Changes\n' > CHANGES.md
commit "Start"
git checkout -q -b discounts
cat > shop.py << 'END'
"""Prices in euros."""


def total(items, discount=0):
    """The sum of (count, price) pairs, less `discount` percent."""
    if not 0 <= discount <= 100:
        raise ValueError(f"a discount of {discount} %")
    return sum(count * price for count, price in items) * (100 - discount) / 100
END
cat >> test_shop.py << 'END'


def test_discount():
    assert total([(1, 10)], discount=50) == 5
END
printf -- '- discounts\n' >> CHANGES.md
commit "Add discounts"
git checkout -q main
cat > shop.py << 'END'
"""Prices in euros."""

from decimal import ROUND_HALF_UP, Decimal


def total(lines):
    """The sum of (count, price) pairs, rounded half up to cents."""
    exact = sum((count * Decimal(str(price)) for count, price in lines), Decimal(0))
    return exact.quantize(Decimal("0.01"), ROUND_HALF_UP)
END
cat >> test_shop.py << 'END'


def test_rounds_half_up():
    assert str(total([(1, 0.125)])) == "0.13"
END
printf -- '- round half up\n' >> CHANGES.md
commit "Round half up"
git merge discounts > /dev/null || true
