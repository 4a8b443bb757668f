#!/bin/sh
# Makes the PTX of the sources here, in this directory or in one that is named. It needs
# clang-19 (Debian: apt-get install clang-19).
set -eu
to=$(realpath "${1:-$(dirname "$0")}")
cd "$(dirname "$0")"
for f in *.cu; do
	clang-19 -x cuda --cuda-device-only --cuda-gpu-arch=sm_80 --cuda-feature=+ptx80 -nocudainc -nocudalib -std=c++17 -O3 \
		-ffp-contract=off -gline-tables-only -fdebug-compilation-dir=. -fdebug-prefix-map="$PWD"=. -S -o "$to/${f%.cu}.ptx" "$f"
done
