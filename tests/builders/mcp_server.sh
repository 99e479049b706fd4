#!/bin/bash
# An MCP server that needs nothing but bash, for sandboxes without Python: `mcp_server.sh [crash | SECONDS]`; the tool `silent` takes SECONDS.
if [ "$1" = crash ]; then echo "the database is not there" >&2; exit 1; fi

tool() { printf '{"name":"%s","description":"Do %s.","inputSchema":{"type":"object","properties":{%s}}}' "$1" "$1" "$2"; }
result() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
text() { result "{\"content\":[{\"type\":\"text\",\"text\":\"$1\"}],\"isError\":${2:-false}}"; }

while IFS= read -r line; do
  [[ $line =~ \"id\":([0-9]+) ]] || continue
  id=${BASH_REMATCH[1]}
  case $line in
  *'"initialize"'*) result '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}}}' ;;
  *'"tools/list"'*)
    words='"text":{"type":"string"},"summary":{"type":"string"}'
    result "{\"tools\":[$(tool note "$words"),$(tool die),$(tool silent),$(tool terminal)]}"
    ;;
  *'"name":"note"'*)
    if [[ $line =~ \"arguments\":\{\"text\":\"([^\"]*)\",\"summary\":\"([^\"]*)\"\} ]]; then
      echo "${BASH_REMATCH[1]}" >>answer.txt
      text "noted by $(id -un): ${BASH_REMATCH[2]}"
    else text "text and summary are needed" true; fi
    ;;
  *'"name":"die"'*) echo "it is all over" >&2; exit 3 ;;
  *'"name":"silent"'*) sleep "${1:-600}" ;;
  *'"name":"terminal"'*) text "the other terminal" ;;
  *) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"unknown tool"}}\n' "$id" ;;
  esac
done
