#!/usr/bin/env python3
"""An MCP server over its standard streams that needs nothing but Python, with one tool for each way to misbehave.

Runs in sandboxes, so it is a script of its own. `--start FAULT` does not get as far as a list of tools; `--names A,B`
lists tools of these names instead, which echo their arguments.
"""

import argparse
import json
import os
import sys
import time

PROPERTIES = {"text": {"type": "string", "title": "Text"}, "count": {"type": "integer", "maximum": 1000_000}}


def write(message):
    line = json.dumps(message, ensure_ascii=False)
    sys.stdout.write((json.dumps(message) if "\ud800" in line else line) + "\n")
    sys.stdout.flush()


def ask(method, number):
    """Ask the client something and return its answer."""
    write({"jsonrpc": "2.0", "id": number, "method": method, "params": {}})
    return json.loads(sys.stdin.readline())


class Tools:
    """Each method is a tool; what it returns is the text of its result, unless it is a whole result."""

    def echo(self, arguments):
        return json.dumps(arguments, ensure_ascii=False)

    def size(self, arguments):
        return str(len(arguments["text"]))

    def big(self, arguments):
        return "é" * arguments["count"]

    def flood(self, arguments):
        while True:
            sys.stdout.write("x" * 65536)

    def die(self, arguments):
        sys.stderr.write("it is all over\n")
        sys.stderr.flush()
        os._exit(3)

    def silent(self, arguments):
        time.sleep(arguments["count"])
        return "late"

    def junk(self, arguments):
        sys.stdout.write('Loading...\n\n{"half": \n[1, 2]\nnull\n"text"\n\x00\xff\n')
        write({"jsonrpc": "2.0", "id": 999, "result": {}})
        return "after junk"

    def chatty(self, arguments):
        write({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}})
        heard = [
            ask(method, f"s{number}") for number, method in enumerate(["ping", "roots/list", "sampling/createMessage"])
        ]
        return json.dumps([one.get("result", one.get("error", {}).get("code")) for one in heard])

    def fails(self, arguments):
        return {"content": [{"type": "text", "text": "no such city"}], "isError": True}

    def mixed(self, arguments):
        resource = {"uri": "file:///a", "mimeType": "text/plain", "text": "in a resource"}
        return {
            "content": [
                {"type": "text", "text": "first"},
                {"type": "image", "data": "AAAA", "mimeType": "image/png"},
                {"type": "resource", "resource": resource},
            ]
        }

    def structured(self, arguments):
        return {"content": [], "structuredContent": {"celsius": 21.5}}

    def repeat(self, arguments):
        return {"content": [], "structuredContent": {arguments["text"]: [arguments["text"]]}}

    def broken(self, arguments):
        return "half a pair: \ud800"

    def pings(self, arguments):
        asked = {"jsonrpc": "2.0", "id": arguments["text"], "method": "ping"}
        sys.stdout.write(f"{json.dumps(asked)}\n" * arguments["count"])
        sys.stdout.flush()
        for _ in range(arguments["count"]):
            sys.stdin.readline()
        return "answered"


def described(name):
    schema = {"type": "object", "title": "Arguments", "properties": PROPERTIES}
    return {"name": name, "title": name.title(), "description": f"Do {name}.", "inputSchema": schema}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--start", default="")
    parser.add_argument("--names", default="")
    options = parser.parse_args()
    if options.start == "crash":
        sys.exit("the database is not there")
    if options.start == "silent":
        sys.stderr.write("waiting for the database\n")
        sys.stderr.flush()
        time.sleep(600)
    tools = Tools()
    names = options.names.split(",") if options.names else [name for name in vars(Tools) if name[0] != "_"]
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        number, params = asked["id"], asked.get("params", {})
        if asked["method"] == "initialize":
            spoken = "1999-01-01" if options.start == "old" else params["protocolVersion"]
            result = {"protocolVersion": spoken, "capabilities": {"tools": {}}, "serverInfo": {"name": "t"}}
        elif asked["method"] == "tools/list":
            start = int(params.get("cursor", 0))
            result = {"tools": [described(name) for name in names[start : start + 5]]}
            if start + 5 < len(names):
                result["nextCursor"] = str(start + 5)
        elif asked["method"] == "tools/call" and params["name"] in names:
            made = getattr(tools, params["name"], tools.echo)(params["arguments"])
            result = made if isinstance(made, dict) else {"content": [{"type": "text", "text": made}]}
        else:
            write({"jsonrpc": "2.0", "id": number, "error": {"code": -32602, "message": "unknown tool"}})
            continue
        write({"jsonrpc": "2.0", "id": number, "result": result})


if __name__ == "__main__":
    main()
