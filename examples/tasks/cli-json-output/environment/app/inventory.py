"""Prints a stock list: name;count;price"""

import argparse


def read(path):
    with open(path) as file:
        for line in file:
            if not line.strip() or line.startswith("#"):
                continue
            try:
                name, count, price = line.rstrip("\n").split(";")
                yield name, int(count), float(price)
            except ValueError:
                continue


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    arguments = parser.parse_args()
    for name, count, price in read(arguments.file):
        print(f"{name:<12}{count:>6}{price:>10.2f}")


if __name__ == "__main__":
    main()
