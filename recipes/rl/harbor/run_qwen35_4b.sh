#!/usr/bin/env bash
# GSPO of Qwen/Qwen3.5-4B on Harbor tasks (docs/launching.md). Arguments: section.key=value, and --dry-run.
#   TRAIN_HARBOR_TASKS=tasks recipes/rl/harbor/run_qwen35_4b.sh trainer.max_training_steps=100
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
drydock=${DRYDOCK:-$here/../../../.venv/bin/drydock}
[ -x "$drydock" ] || { echo "$drydock is not there: run \`make setup\`, or set DRYDOCK to the command" >&2; exit 2; }
: "${TRAIN_HARBOR_TASKS:?is not set: name Harbor task directories, or directories of them, joined by colons}"
export RUN_NAME=${RUN_NAME:-qwen35-4b-harbor}
# exec: the process that is started is the driver, so signals reach it and launcher.pid names it.
exec "$drydock" train "$here/qwen35_4b.toml" "trainer.policy.model.path=${MODEL:-Qwen/Qwen3.5-4B}" "$@"
