//! Compiles the programs for the kernel with clang: the tester's, and the fast path of AF_XDP interfaces. Without clang the build
//! succeeds, and `xdp:` ports and `show xdp fast-path` say what is missing.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    for program in ["transmit", "receive", "forward"] {
        compile(&clang, program);
    }
}

/// Makes an object file of a program, an empty one where that cannot be.
fn compile(clang: &str, program: &str) {
    let source = format!("bpf/{program}.c");
    let object = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join(format!("{program}.o"));
    // The programs convert to network order as a little-endian machine must.
    let fits = env::var("CARGO_CFG_TARGET_ENDIAN").is_ok_and(|e| e == "little");
    let compile = || {
        let mut command = Command::new(clang);
        command.args(["-target", "bpfel", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-c", &source, "-o"]);
        command.arg(&object).output()
    };
    match fits.then(compile) {
        Some(Ok(output)) if output.status.success() => return,
        Some(Ok(output)) => {
            let said = String::from_utf8_lossy(&output.stderr);
            println!("cargo:warning={source} does not compile, so what needs it is missing: {}", said.lines().next().unwrap_or(""));
        }
        // Where programs are installed something changes when clang comes, and then this is to be done again.
        Some(Err(_)) => ["/usr/local/bin", "/usr/bin"].iter().for_each(|folder| println!("cargo:rerun-if-changed={folder}")),
        None => {}
    }
    if let Err(error) = fs::write(&object, []) {
        println!("cargo:warning={}: {error}", object.display());
    }
}
