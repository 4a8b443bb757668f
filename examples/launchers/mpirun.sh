#!/bin/bash
# Checks hosts together, by as many agents on each as it is said to have slots:
#
#   examples/launchers/mpirun.sh node1:4,node2:4 [flags of verify]
#
# It runs on any host from which Open MPI's mpirun reaches the others. VERIFY names
# the program, at a path that all hosts have; PORT is where the agents meet on the
# first host. The exit code is the verdict's.
set -euo pipefail

if [[ $# -lt 1 || $1 == -* ]]; then
	echo "usage: $0 HOST:SLOTS[,HOST:SLOTS...] [flags of verify]" >&2
	exit 2
fi
hosts=$1
shift

agents=0
IFS=, read -ra list <<<"$hosts"
for host in "${list[@]}"; do
	slots=${host##*:}
	if [[ $host != *:* || ! $slots =~ ^[1-9][0-9]*$ ]]; then
		echo "$0: $host: must be HOST:SLOTS" >&2
		exit 2
	fi
	agents=$((agents + slots))
done
first=${list[0]%:*}

# The secret by which the agents know each other; -x hands it on.
if [[ -z ${LOCKSTEP_TOKEN:-} ]]; then
	LOCKSTEP_TOKEN=$(head -c 32 /dev/urandom | base64)
fi
export LOCKSTEP_TOKEN

exec mpirun --host "$hosts" -n "$agents" -x LOCKSTEP_TOKEN "${VERIFY:-bin/verify}" \
	--expect-agents="$agents" --rendezvous="$first:${PORT:-29500}" "$@"
