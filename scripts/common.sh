# Sourced by the other scripts: run from the project's folder, find tools where a plain login does not look.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
export HOME="${HOME:-$(getent passwd "$(id -u)" | cut -d : -f 6)}"
export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin:/usr/local/sbin:/usr/sbin:/sbin"
target=${CARGO_TARGET_DIR:-target}

say() { printf '== %s\n' "$*"; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# Cargo's words that build daemon and tester with DPDK, where its headers are (libdpdk-dev); nothing where they are not.
dpdk_features() {
  if command -v pkg-config cc >/dev/null && pkg-config --atleast-version=22.11 libdpdk; then
    echo "--features quiver/dpdk,quiver-tester/dpdk"
  fi
}
