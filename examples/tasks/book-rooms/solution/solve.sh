#!/bin/bash
# The same calls that an agent makes, written to the server by hand.
set -e
call() {
  printf '{"jsonrpc": "2.0", "id": %s, "method": "tools/call", "params": {"name": "book", "arguments": %s}}\n' "$1" "$2"
}
{
  echo '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}'
  echo '{"jsonrpc": "2.0", "method": "notifications/initialized"}'
  call 2 '{"room": "cedar", "day": "2026-03-10", "start": 10, "end": 12, "title": "Design review"}'
  call 3 '{"room": "cedar", "day": "2026-03-10", "start": 14, "end": 15, "title": "All hands"}'
  call 4 '{"room": "aster", "day": "2026-03-10", "start": 10, "end": 11, "title": "One to one"}'
} | python3 /opt/calendar/server.py
