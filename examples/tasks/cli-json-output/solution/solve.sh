#!/bin/bash
cat > /app/inventory.py << 'END'
"""Prints a stock list: name;count;price"""

import argparse
import json
import sys


def read(path):
    with sys.stdin if path == "-" else open(path) as file:
        for number, line in enumerate(file, start=1):
            line = line.rstrip("\n")
            if not line.strip() or line.startswith("#"):
                continue
            try:
                name, count, price = line.split(";")
                yield {"name": name, "count": int(count), "price": float(price)}
            except ValueError:
                sys.exit(f"{path}:{number}: cannot read: {line}")


def not_negative(text):
    if int(text) < 0:
        raise ValueError
    return int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--min-count", type=not_negative, default=0)
    parser.add_argument("--sort", choices=["name", "count", "price"])
    arguments = parser.parse_args()
    items = [item for item in list(read(arguments.file)) if item["count"] >= arguments.min_count]
    if arguments.sort:
        items.sort(key=lambda item: (item[arguments.sort], item["name"]))
    if arguments.json:
        print(json.dumps(items))
    else:
        for item in items:
            print(f"{item['name']:<12}{item['count']:>6}{item['price']:>10.2f}")


if __name__ == "__main__":
    main()
END
