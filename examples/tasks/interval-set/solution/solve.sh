#!/bin/bash
cat > /app/intervals.py << 'END'
class IntervalSet:
    def __init__(self, pairs=()):
        self._pairs = []
        for start, end in pairs:
            self.add(start, end)

    def add(self, start, end):
        self._check(start, end)
        if start == end:
            return
        kept = []
        for a, b in self._pairs:
            if b < start or a > end:
                kept.append((a, b))
            else:
                start, end = min(a, start), max(b, end)
        self._pairs = sorted([*kept, (start, end)])

    def remove(self, start, end):
        self._check(start, end)
        pieces = []
        for a, b in self._pairs:
            pieces += [(a, min(b, start)), (max(a, end), b)] if start < end else [(a, b)]
        self._pairs = [(a, b) for a, b in pieces if a < b]

    def __contains__(self, x):
        return any(a <= x < b for a, b in self._pairs)

    def __len__(self):
        return sum(b - a for a, b in self._pairs)

    def __iter__(self):
        return iter(list(self._pairs))

    def __or__(self, other):
        return IntervalSet([*self, *other])

    def __sub__(self, other):
        result = IntervalSet(self)
        for start, end in other:
            result.remove(start, end)
        return result

    def __and__(self, other):
        return self - (self - other)

    def __eq__(self, other):
        return isinstance(other, IntervalSet) and self._pairs == other._pairs

    def __repr__(self):
        return f"IntervalSet({self._pairs})"

    @staticmethod
    def _check(start, end):
        if start > end:
            raise ValueError(f"{start} is after {end}")
END
