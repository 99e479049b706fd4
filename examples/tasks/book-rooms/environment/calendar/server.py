"""A calendar of meeting rooms as an MCP server over standard input and output; bookings are kept in a file."""

import json
import sys
from pathlib import Path

FILE = Path(__file__).with_name("bookings.json")
ROOMS = {"aster": 4, "birch": 8, "cedar": 20}
OPEN, CLOSE = 9, 17

DAY = {"type": "string", "description": "as 2026-03-10"}
HOUR = {"type": "integer", "minimum": OPEN, "maximum": CLOSE}
BOOKING = {"room": {"type": "string"}, "day": DAY, "start": HOUR, "end": HOUR, "title": {"type": "string"}}


def tool(name, description, properties):
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": description, "inputSchema": schema}


TOOLS = [
    tool("list_rooms", "The rooms and how many seats each has.", {}),
    tool("list_bookings", "What is booked on a day, in all rooms.", {"day": DAY}),
    tool("book", "Book a room from one full hour to another.", BOOKING),
]


def list_rooms():
    return "\n".join(f"{room}: {seats} seats" for room, seats in ROOMS.items())


def list_bookings(day):
    found = [one for one in json.loads(FILE.read_text()) if one["day"] == day]
    return "\n".join(f"{one['room']} {one['start']}-{one['end']} {one['title']}" for one in found) or "nothing"


def book(room, day, start, end, title):
    if room not in ROOMS:
        raise ValueError(f"there is no room {room}")
    if not OPEN <= start < end <= CLOSE:
        raise ValueError(f"rooms are open from {OPEN} to {CLOSE}")
    bookings = json.loads(FILE.read_text())
    for other in bookings:
        if (other["room"], other["day"]) == (room, day) and start < other["end"] and other["start"] < end:
            raise ValueError(f"{room} is taken from {other['start']} to {other['end']} ({other['title']})")
    bookings.append({"room": room, "day": day, "start": start, "end": end, "title": title})
    FILE.write_text("[\n  " + ",\n  ".join(json.dumps(one) for one in bookings) + "\n]\n")
    return f"booked {room} on {day}, {start}-{end}"


def called(name, arguments):
    try:
        text, failed = {"list_rooms": list_rooms, "list_bookings": list_bookings, "book": book}[name](**arguments), False
    except (KeyError, TypeError, ValueError) as error:
        text, failed = f"{type(error).__name__}: {error}", True
    return {"content": [{"type": "text", "text": text}], "isError": failed}


def answer(method, params):
    if method == "initialize":
        server = {"name": "calendar", "version": "1.0"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": server}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return called(params["name"], params.get("arguments", {}))
    return {}


for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        result = answer(asked["method"], asked.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
