#!/bin/bash
cat > /app/summary.jq << 'END'
group_by(.region) | map({
  key: .[0].region,
  value: {
    running: map(select(.state == "running")) | length,
    gb: [.[] | .disks // [] | .[]] | group_by(.type) | map({key: .[0].type, value: map(.gb) | add}) | from_entries,
    owners: [.[] | .tags.owner // empty] | unique,
    untagged: [.[] | select(.tags.owner == null) | .name] | sort
  }
}) | from_entries
END
