#!/usr/bin/env bash
# Makes a release archive from built programs: packaging/archive.sh VERSION TARGET FOLDER-OF-PROGRAMS OUTPUT-FOLDER
# For example, after `cargo build --release -p model-pool -p admin-client`:
#
#   packaging/archive.sh 0.1.0 x86_64-unknown-linux-gnu target/release dist
#   (cd dist && sha256sum -- * >SHA256SUMS) && sh deploy/install.sh --from dist
#
# An archive has one folder, model-pool-VERSION-TARGET, which deploy/install.sh reads.
set -euo pipefail

if (($# != 4)); then
    echo "usage: packaging/archive.sh VERSION TARGET FOLDER-OF-PROGRAMS OUTPUT-FOLDER" >&2
    exit 2
fi
version="$1"
target="$2"
programs="$(cd "$3" && pwd)"
mkdir -p "$4"
output="$(cd "$4" && pwd)"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name="model-pool-$version-$target"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
folder="$work/$name"

install -d "$folder/config/models" "$folder/deploy/models"
install -m 0755 "$programs/model-pool" "$programs/admin-client" "$folder/"
install -m 0644 README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT model_reference.json "$folder/"
install -m 0644 config/model-pool.yaml config/model-pool.schema.json "$folder/config/"
# The models of the repository need demo/, which is not in the archive.
install -m 0644 deploy/models/README "$folder/config/models/"
install -m 0644 deploy/model-pool.service deploy/model-pool.yaml "$folder/deploy/"
install -m 0644 deploy/models/README "$folder/deploy/models/"

# Without the names of the builder's accounts. COPYFILE_DISABLE keeps macOS from adding files of its own.
owner=(--owner=0 --group=0)
tar --version 2>/dev/null | grep -q GNU || owner=(--uid 0 --gid 0)
COPYFILE_DISABLE=1 tar -C "$work" "${owner[@]}" -czf "$output/$name.tar.gz" "$name"
echo "$output/$name.tar.gz"
