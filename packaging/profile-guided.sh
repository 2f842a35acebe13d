#!/usr/bin/env bash
# Builds model-pool a second time with what a first build recorded while it served: the compiler then knows which paths are
# taken, and puts them together. packaging/profile-guided.sh OUTPUT-FOLDER [OPTION OF CARGO…]
#
#   packaging/profile-guided.sh target/profile-guided --features model-pool/full
#
# The program is at OUTPUT-FOLDER/model-pool. Both builds are complete ones; what is recorded comes from
# `cargo bench --bench gateway`, which needs nothing outside of this repository. JOBS is the number of jobs of cargo.
set -euo pipefail

if (($# < 1)) || [[ "$1" == -* ]]; then
    echo "usage: packaging/profile-guided.sh OUTPUT-FOLDER [OPTION OF CARGO…]" >&2
    exit 2
fi
mkdir -p "$1"
output="$(cd "$1" && pwd)"
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target="$(rustc -vV | sed -n 's/^host: //p')"
profdata="$(rustc --print sysroot)/lib/rustlib/$target/bin/llvm-profdata"
if [[ ! -x "$profdata" ]]; then
    echo "there is no $profdata: run \`rustup component add llvm-tools\`" >&2
    exit 1
fi
profiles="$output/profiles"
rm -rf "$profiles"
mkdir "$profiles"
# With --target, flags are for the program alone and not for what runs during the build.
options=(--locked --target "$target" --target-dir "$output/build" ${JOBS:+--jobs "$JOBS"} "$@")

RUSTFLAGS="${RUSTFLAGS:-} -Cprofile-generate=$profiles" \
    cargo bench "${options[@]}" -p model-pool --bench gateway -- --quick --only plain,streams,tokens
"$profdata" merge -o "$output/model-pool.profdata" "$profiles"
rm -rf "$profiles"
RUSTFLAGS="${RUSTFLAGS:-} -Cprofile-use=$output/model-pool.profdata" \
    cargo build "${options[@]}" --release -p model-pool --bin model-pool
install -m 0755 "$output/build/$target/release/model-pool" "$output/model-pool"
echo "$output/model-pool"
