//! Compiles the C shim with the flags that DPDK's headers need, and links its libraries. Only with the feature `linked`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=shim");
    #[cfg(feature = "linked")]
    linked::build();
}

#[cfg(feature = "linked")]
mod linked {
    use std::process::Command;

    /// What pkg-config says. The crate of that name keeps include paths only and loses `-include rte_config.h` and `-march`,
    /// without which the headers mean something else, so the program itself is asked.
    fn pkg_config(what: &str) -> Vec<String> {
        let remedy = "the feature `linked` needs DPDK 22.11 or newer (Debian 12: apt-get install libdpdk-dev pkg-config)";
        let output = match Command::new("pkg-config").args([what, "libdpdk >= 22.11"]).output() {
            Ok(output) if output.status.success() => output.stdout,
            Ok(output) => panic!("{remedy}\n{}", String::from_utf8_lossy(&output.stderr)),
            Err(error) => panic!("{remedy}\npkg-config: {error}"),
        };
        String::from_utf8_lossy(&output).split_whitespace().map(str::to_owned).collect()
    }

    pub fn build() {
        let mut shim = cc::Build::new();
        shim.files(["shim/eal.c", "shim/pool.c", "shim/burst.c", "shim/port.c", "shim/times.c"]);
        // A burst is hot in every build of ours.
        shim.opt_level(3).define("ALLOW_EXPERIMENTAL_API", None).warnings(true).extra_warnings(true);
        for flag in pkg_config("--cflags") {
            shim.flag(flag);
        }
        // DPDK's own headers do not keep to these.
        shim.flag_if_supported("-Wno-unused-parameter").flag_if_supported("-Wno-address-of-packed-member");
        shim.compile("quiver_dpdk_shim");
        for flag in pkg_config("--libs") {
            // What the shim calls is in a few of the fifty libraries; the linker leaves the others out.
            match flag.strip_prefix("-l") {
                Some(library) => println!("cargo:rustc-link-lib=dylib={library}"),
                None if flag.starts_with("-L") => println!("cargo:rustc-link-search=native={}", &flag[2..]),
                None => {}
            }
        }
    }
}
