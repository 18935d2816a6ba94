# Sourced after common.sh: Debian's own Rust, unpacked under target/ without installing anything (it conflicts with rustup's) and
# without changing the machine's apt set-up. For what rustup's toolchain here has not: another architecture's standard library, or the
# standard library's source.

# debian_rust FOLDER PACKAGE…: unpacks rustc-web and these packages into FOLDER/root, once, and makes FOLDER/rustc, a compiler that
# finds its libraries and standard library there. A package with `:ARCHITECTURE` is that architecture's.
debian_rust() {
  local folder=$1
  shift
  mkdir -p "$folder"
  # Two stages of the gate may come here at once.
  exec 9>"$folder/lock"
  flock 9
  if ! "$folder/rustc" --version >/dev/null 2>&1; then
    command -v apt-get >/dev/null || die "no apt-get to fetch rustc-web with"
    say "fetching rustc-web, $* (about 130 MB, once)"
    mkdir -p "$folder"/apt/{lists/partial,archives/partial,deb}
    cat >"$folder/apt/conf" <<CONF
APT::Architecture "$(dpkg --print-architecture)";
APT::Architectures { "$(dpkg --print-architecture)"; "arm64"; };
APT::Sandbox::User "root";
Dir::State::lists "$folder/apt/lists";
Dir::Cache "$folder/apt";
CONF
    (
      export APT_CONFIG=$folder/apt/conf
      apt-get -qq update </dev/null
      depends() { apt-cache depends "$1" | sed -n "s/^ *Depends: \($2\)$/\1/p" | head -n 1; }
      std=$(depends libstd-rust-web-dev 'libstd-rust-web-.*')
      llvm=$(depends "$std" 'libllvm.*')
      [[ $std && $llvm ]] || die "this distribution has no rustc-web"
      rm -rf "$folder/root"
      mkdir -p "$folder/root"
      # The rest of what rustc links to is on every machine that has a C compiler, or comes with `scripts/install-packages ci`.
      cd "$folder/apt/deb"
      apt-get -qq download rustc-web "$std" "$llvm" libstd-rust-web-dev "$@" </dev/null
      for package in *.deb; do
        dpkg -x "$package" "$folder/root"
      done
    )
    rm -rf "$folder/apt"
    cat >"$folder/rustc" <<'WRAPPER'
#!/bin/sh
root=$(dirname "$0")/root/usr
LD_LIBRARY_PATH=$(echo "$root"/lib/*-linux-gnu) exec "$root/bin/rustc" --sysroot "$root" "$@"
WRAPPER
    chmod +x "$folder/rustc"
  fi
  exec 9>&-
  "$folder/rustc" --version || die "the unpacked compiler does not run: $("$folder/rustc" --version 2>&1)"
}
