#!/bin/sh
# Installs model-pool and admin-client from a release archive, after checking it against SHA256SUMS.
#
#   sh install.sh                       the latest release, into ~/.local
#   sh install.sh --version 0.1.0 --prefix /usr/local
#   sh install.sh --from DIR            from files that are there already; nothing is downloaded
#
# docs/start/install.md says what is installed and how to remove it. POSIX sh; needs tar, a program that computes SHA-256, and
# curl or wget unless --from is used.
set -eu

# The repository on github.com with the releases, as owner/name. The copy of this script that is part of a release has
# the repository of that release here.
MODEL_POOL_REPOSITORY="${MODEL_POOL_REPOSITORY:-}"

version=""
prefix=""
from=""
dry_run=""

say() { printf '%s\n' "$*"; }
fail() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}
wrong_usage() {
    printf 'install.sh: %s; see --help\n' "$*" >&2
    exit 2
}
has() { command -v "$1" >/dev/null 2>&1; }

usage() {
    cat <<'TEXT'
usage: install.sh [--version VERSION] [--prefix DIR] [--from DIR] [--dry-run]

  --version VERSION  this release, such as 0.1.0; without it the latest one
  --prefix DIR       install into DIR/bin and DIR/share/model-pool; ~/.local by default
  --from DIR         take the archive and SHA256SUMS from DIR instead of downloading them
  --dry-run          check everything and say what would be installed; install nothing
  --help             show this

MODEL_POOL_REPOSITORY=owner/name names the repository on github.com to download from.
TEXT
}

while [ $# -gt 0 ]; do
    case "$1" in
    --version | --prefix | --from)
        if [ $# -lt 2 ] || [ -z "$2" ]; then
            wrong_usage "$1 needs a value"
        fi
        case "$1" in
        --version) version="${2#v}" ;;
        --prefix) prefix="$2" ;;
        --from) from="$2" ;;
        esac
        shift 2
        ;;
    --version=*) version="${1#*=}" version="${version#v}" && shift ;;
    --prefix=*) prefix="${1#*=}" && shift ;;
    --from=*) from="${1#*=}" && shift ;;
    --dry-run) dry_run=yes && shift ;;
    -h | --help) usage && exit 0 ;;
    *) wrong_usage "unknown argument: $1" ;;
    esac
done

case "$version" in
*[!0-9A-Za-z.+-]*) wrong_usage "this is not a version: $version" ;;
esac
if [ -z "$prefix" ]; then
    [ -n "${HOME:-}" ] || fail "HOME is not set: name a folder with --prefix"
    prefix="$HOME/.local"
fi
case "$prefix" in
/*) ;;
*) prefix="$(pwd)/$prefix" ;;
esac

# Which archive this machine needs.
system="$(uname -s)"
processor="$(uname -m)"
case "$system/$processor" in
Linux/x86_64 | Linux/amd64) target=x86_64-unknown-linux-gnu ;;
Linux/aarch64 | Linux/arm64) target=aarch64-unknown-linux-gnu ;;
Darwin/arm64) target=aarch64-apple-darwin ;;
*) fail "there is no release for $system on $processor; build it from source: docs/start/install.md" ;;
esac

if has sha256sum; then
    digest_of() { sha256sum <"$1" | cut -d ' ' -f 1; }
elif has shasum; then
    digest_of() { shasum -a 256 <"$1" | cut -d ' ' -f 1; }
elif has openssl; then
    digest_of() { openssl dgst -sha256 -r <"$1" | cut -d ' ' -f 1; }
else
    fail "cannot check the download: install sha256sum, shasum or openssl"
fi
has tar || fail "tar is missing"

work="$(mktemp -d "${TMPDIR:-/tmp}/model-pool-install.XXXXXX")" || fail "cannot create a temporary folder"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# download URL FILE
download() {
    if has curl; then
        curl --proto '=https' --proto-redir '=https' --tlsv1.2 -fsSL --retry 3 -o "$2" "$1"
    elif has wget; then
        wget --https-only -q -O "$2" "$1"
    else
        fail "neither curl nor wget is here: install one, or download the archive and SHA256SUMS and use --from"
    fi || fail "cannot download $1; is the version right, and can this machine reach github.com?"
}

if [ -n "$from" ]; then
    [ -d "$from" ] || fail "there is no folder $from (--from)"
    sums="$from/SHA256SUMS"
    [ -f "$sums" ] || fail "$sums is missing: --from needs SHA256SUMS beside the archive"
else
    case "$MODEL_POOL_REPOSITORY" in
    "") fail "no repository to download from: set MODEL_POOL_REPOSITORY=owner/name, or use --from" ;;
    */*/* | /* | */ | *[!0-9A-Za-z._/-]*) fail "MODEL_POOL_REPOSITORY=$MODEL_POOL_REPOSITORY is not of the form owner/name" ;;
    */*) ;;
    *) fail "MODEL_POOL_REPOSITORY=$MODEL_POOL_REPOSITORY is not of the form owner/name" ;;
    esac
    releases="https://github.com/$MODEL_POOL_REPOSITORY/releases"
    sums="$work/SHA256SUMS"
    if [ -n "$version" ]; then
        download "$releases/download/v$version/SHA256SUMS" "$sums"
    else
        download "$releases/latest/download/SHA256SUMS" "$sums"
    fi
fi

# SHA256SUMS says which versions there are. A line is a digest, a space, a space or an asterisk, and a name.
archives="$(sed -n "s/^[0-9a-fA-F]\{64\} [ *]\(model-pool-[0-9A-Za-z.+-]*-$target\.tar\.gz\)\$/\1/p" "$sums" | sort -u)"
if [ -n "$version" ]; then
    archive="model-pool-$version-$target.tar.gz"
    printf '%s\n' "$archives" | grep -Fqx -- "$archive" || fail "SHA256SUMS has no $archive"
else
    case "$(printf '%s\n' "$archives" | grep -c .)" in
    0) fail "SHA256SUMS has no archive for $target" ;;
    1) archive="$archives" ;;
    *) fail "SHA256SUMS has several archives for $target: name one with --version" ;;
    esac
    version="${archive#model-pool-}"
    version="${version%-"$target".tar.gz}"
fi
expected="$(sed -n "s/^\([0-9a-fA-F]\{64\}\) [ *]\(.*\)\$/\1 \2/p" "$sums" |
    awk -v name="$archive" '$2 == name { print tolower($1) }' | sort -u)"
case "$expected" in
*"
"*) fail "SHA256SUMS has two different digests for $archive" ;;
esac

if [ -n "$from" ]; then
    file="$from/$archive"
    [ -f "$file" ] || fail "$file is missing"
else
    file="$work/$archive"
    download "$releases/download/v$version/$archive" "$file"
fi
actual="$(digest_of "$file")"
if [ "$actual" != "$expected" ]; then
    fail "$archive is not what SHA256SUMS says; nothing was installed
  expected $expected
  found    $actual"
fi
say "$archive: SHA-256 is right"

# The archive has one folder, and nothing outside of it.
folder="model-pool-$version-$target"
tar -tzf "$file" >"$work/names" || fail "$archive cannot be read"
if grep -Ev "^(\./)?$folder(/|\$)" "$work/names" | grep -q . || grep -Eq '(^|/)\.\.(/|$)' "$work/names"; then
    fail "$archive has files outside of $folder; nothing was installed"
fi
mkdir "$work/unpacked"
tar -xzf "$file" -C "$work/unpacked" || fail "$archive cannot be unpacked"
unpacked="$work/unpacked/$folder"
for program in model-pool admin-client; do
    if [ ! -f "$unpacked/$program" ] || [ -L "$unpacked/$program" ]; then
        fail "$archive has no $program"
    fi
    chmod 0755 "$unpacked/$program"
    found="$("$unpacked/$program" --version 2>"$work/error")" ||
        fail "$program does not run on this machine: $(head -n 1 "$work/error")
  On a system with an older C library build it from source: docs/start/install.md.
  If programs may not be run in ${TMPDIR:-/tmp}, set TMPDIR to another folder."
    [ "$found" = "$program $version" ] || fail "$program says that it is \"$found\", not $version"
done

if [ -n "$dry_run" ]; then
    say "would install model-pool $version:"
    say "  $prefix/bin/model-pool"
    say "  $prefix/bin/admin-client"
    say "  $prefix/share/model-pool/ (sample configuration, systemd unit, licences)"
    exit 0
fi

mkdir -p "$prefix/bin" "$prefix/share/model-pool" 2>"$work/error" || fail "cannot write to $prefix: $(head -n 1 "$work/error")"
# A rename replaces a program that runs, and never leaves half of one.
for program in model-pool admin-client; do
    new="$prefix/bin/.$program.new.$$"
    if ! { cp "$unpacked/$program" "$new" && chmod 0755 "$new" && mv -f "$new" "$prefix/bin/$program"; } 2>"$work/error"; then
        rm -f "$new"
        fail "cannot write $prefix/bin/$program: $(head -n 1 "$work/error")"
    fi
done
rm -f "$unpacked/model-pool" "$unpacked/admin-client"
# Samples only: nobody's own configuration lies here.
rm -rf "$prefix/share/model-pool"
mkdir -p "$prefix/share/model-pool"
cp -R "$unpacked/." "$prefix/share/model-pool/" || fail "cannot write $prefix/share/model-pool"

say "installed model-pool $version:"
say "  $prefix/bin/model-pool"
say "  $prefix/bin/admin-client"
say "  $prefix/share/model-pool/"
case ":${PATH:-}:" in
*":$prefix/bin:"*) ;;
*) say "$prefix/bin is not on the PATH; add: export PATH=\"$prefix/bin:\$PATH\"" ;;
esac
