#!/bin/bash
cat > /app/calc.py << 'END'
"""Exact arithmetic by recursive descent."""

import re
from fractions import Fraction

TOKEN = re.compile(r"\s*(?:(?P<number>\d+(?:\.\d*)?|\.\d+)|(?P<name>[^\W\d]\w*)|(?P<sign>[-+*/^(),]))")
DEEPEST = 100
FUNCTIONS = {"min": (min, None), "max": (max, None), "abs": (abs, 1)}


class CalcError(ValueError):
    def __init__(self, message, position):
        super().__init__(f"{message} at {position}")
        self.position = position


def tokens_of(text):
    tokens = []
    position = 0
    while text[position:].strip():
        found = TOKEN.match(text, position)
        if not found:
            blanks = len(text[position:]) - len(text[position:].lstrip())
            raise CalcError("cannot read", position + blanks)
        tokens.append((found.lastgroup, found[found.lastgroup], found.start(found.lastgroup)))
        position = found.end()
    return [*tokens, ("end", "", len(text))]


class Parser:
    def __init__(self, text, names):
        self.tokens, self.names, self.at, self.depth = tokens_of(text), names, 0, 0

    def peek(self):
        return self.tokens[self.at][1] if self.tokens[self.at][0] == "sign" else None

    def take(self):
        token = self.tokens[self.at]
        self.at += 1
        return token

    def expect(self, sign):
        if self.peek() != sign:
            raise CalcError(f"expected {sign}", self.tokens[self.at][2])
        return self.take()

    def whole(self):
        value = self.sum()
        if self.tokens[self.at][0] != "end":
            raise CalcError("unexpected text", self.tokens[self.at][2])
        return value

    def sum(self):
        value = self.product()
        while self.peek() in ("+", "-"):
            value = value + self.product() if self.take()[1] == "+" else value - self.product()
        return value

    def product(self):
        value = self.unary()
        while self.peek() in ("*", "/"):
            _, sign, position = self.take()
            right = self.unary()
            if sign == "/" and right == 0:
                raise CalcError("division by zero", position)
            value = value * right if sign == "*" else value / right
        return value

    def unary(self):
        self.depth += 1
        if self.depth > DEEPEST:
            raise CalcError("nested too deeply", self.tokens[self.at][2])
        try:
            if self.peek() in ("+", "-"):
                return -self.unary() if self.take()[1] == "-" else self.unary()
            return self.power()
        finally:
            self.depth -= 1

    def power(self):
        base = self.atom()
        if self.peek() != "^":
            return base
        position = self.take()[2]
        exponent = self.unary()
        if exponent.denominator != 1 or (base == 0 and exponent < 0):
            raise CalcError("no such power", position)
        return Fraction(base ** exponent.numerator)

    def atom(self):
        kind, text, position = self.take()
        if kind == "number":
            return Fraction(text if not text.endswith(".") else text + "0")
        if kind == "name":
            return self.named(text, position)
        if text == "(":
            value = self.sum()
            self.expect(")")
            return value
        raise CalcError("expected a value", position)

    def named(self, name, position):
        if name not in FUNCTIONS:
            if name not in self.names:
                raise CalcError(f"unknown name {name}", position)
            return Fraction(self.names[name])
        function, wanted = FUNCTIONS[name]
        self.expect("(")
        values = [self.sum()]
        while self.peek() == ",":
            self.take()
            values.append(self.sum())
        self.expect(")")
        if wanted == 1:
            if len(values) != 1:
                raise CalcError(f"{name} takes one argument", position)
            return function(values[0])
        return function(values)


def evaluate(text, names=None):
    return Parser(text, names or {}).whole()
END
