#!/bin/bash
# Checks nodes together, by AGENTS on each; run it on every node:
#
#   NODES=2 AGENTS=4 FIRST=node1 TOKEN_FILE=token examples/launchers/torchrun.sh [flags of verify]
#
# FIRST names the first node, where torchrun listens (PORT) and the agents meet beside
# it. TOKEN_FILE holds the secret by which the agents know each other, the same on all
# nodes; make one by: head -c 32 /dev/urandom | base64 > token && chmod 600 token.
# VERIFY names the program. The exit code is torchrun's: 0 where all is held, else 1;
# the verdict is what verify prints, and the code that torchrun reports of it.
set -euo pipefail
: "${NODES:?how many nodes}" "${AGENTS:?agents on each node}" "${FIRST:?name of the first node}" "${TOKEN_FILE:?file with a secret}"

exec torchrun --nnodes="$NODES" --nproc-per-node="$AGENTS" --max-restarts=0 \
	--rdzv-backend=c10d --rdzv-endpoint="$FIRST:${PORT:-29400}" --rdzv-id=lockstep-verify \
	--no-python "${VERIFY:-bin/verify}" --expect-agents="$((NODES * AGENTS))" --token-file="$TOKEN_FILE" "$@"
