//! Looks at a file before anything of it runs.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use object::{Architecture, Object, ObjectKind, ObjectSection, ObjectSymbol};
use quiver_plugin::abi::{ABI, Plugin, SYMBOL, Sizes};

/// Bytes of a plugin at most.
const LARGEST: u64 = 256 << 20;

/// The architecture of this program.
const fn own() -> Architecture {
    if cfg!(target_arch = "aarch64") { Architecture::Aarch64 } else { Architecture::X86_64 }
}

/// Whether a file is a plugin for this router.
///
/// # Errors
/// Why not, in a few words.
pub fn check(path: &Path) -> Result<(), String> {
    let folder = path.parent().and_then(|folder| fs::metadata(folder).ok());
    // A name without a device behind it: opening does not wait.
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(nonblock())
        .open(path)
        .map_err(|error| format!("cannot read it: {error}"))?;
    let about = file.metadata().map_err(|error| format!("cannot read it: {error}"))?;
    if !about.is_file() {
        return Err("it is no file".to_owned());
    }
    if about.len() > LARGEST {
        return Err(format!("it has {} bytes, more than {LARGEST}", about.len()));
    }
    let others = |mode: u32| mode & 0o002 != 0;
    if others(about.mode()) || folder.is_some_and(|folder| others(folder.mode())) {
        return Err("everybody can write it or its folder; take that right away".to_owned());
    }
    check_text(&read(file)?)
}

/// `O_NONBLOCK`.
const fn nonblock() -> i32 {
    0o4000
}

fn read(file: File) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes).map_err(|error| format!("cannot read it: {error}"))?;
    Ok(bytes)
}

/// Whether these bytes are a plugin for this router.
pub(crate) fn check_text(bytes: &[u8]) -> Result<(), String> {
    let file = object::File::parse(bytes).map_err(|_| "it is no shared object".to_owned())?;
    if file.architecture() != own() {
        return Err(format!("it is for {:?}, and this router for {:?}", file.architecture(), own()));
    }
    if file.kind() != ObjectKind::Dynamic {
        return Err("it is no shared object".to_owned());
    }
    let symbol = file.dynamic_symbols().find(|symbol| symbol.is_definition() && symbol.name() == Ok(SYMBOL));
    let Some(symbol) = symbol else { return Err(format!("it is no plugin: it has no symbol `{SYMBOL}'")) };
    let section = symbol.section_index().and_then(|index| file.section_by_index(index).ok());
    // Version and sizes are numbers, which no relocation changes: they stand in the file as in memory.
    let words = 2 + Sizes::OWN.named().len();
    let data = section.and_then(|section| section.data_range(symbol.address(), 4 * words as u64).ok().flatten());
    let Some(data) = data else { return Err(format!("its symbol `{SYMBOL}' is too short")) };
    let (words, _) = data.as_chunks::<4>();
    let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    check_sizes(&words)
}

/// Version, size of the first structure, sizes of the others.
pub(crate) fn check_sizes(words: &[u32]) -> Result<(), String> {
    let [abi, size, others @ ..] = words else { return Err(format!("its symbol `{SYMBOL}' is too short")) };
    if *abi != ABI {
        return Err(format!(
            "it is made for version {abi} of the plugin interface, and this router has version {ABI}; build it again"
        ));
    }
    let own = Sizes::OWN.named();
    let own = std::iter::once(("quiver_plugin", size_of::<Plugin>() as u32)).chain(own);
    for ((name, own), theirs) in own.zip(std::iter::once(size).chain(others)) {
        if own != *theirs {
            return Err(format!(
                "its structure `{name}' has {theirs} bytes, and the router's {own}; build it again with this router's header"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_plugin_says_what_it_is() {
        assert_eq!(check_text(b"#!/bin/sh"), Err("it is no shared object".to_owned()));
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(check_text(&own), Err("it is no plugin: it has no symbol `quiver_plugin'".to_owned()));
        assert!(check(Path::new("/dev/null")).is_err_and(|error| error == "it is no file"));
        assert!(check(Path::new("/no/such.so")).is_err_and(|error| error.starts_with("cannot read it: ")));
        // A header and nothing behind it.
        assert_eq!(check_text(&own[..200]), Err("it is no shared object".to_owned()));
    }

    #[test]
    fn versions_and_sizes_are_compared_one_by_one() {
        let mut words = vec![ABI, size_of::<Plugin>() as u32];
        words.extend(Sizes::OWN.named().map(|(_, size)| size));
        assert_eq!(check_sizes(&words), Ok(()));
        for (at, what) in
            [(0, "version"), (1, "`quiver_plugin'"), (2, "`quiver_host'"), (3, "`quiver_batch'"), (8, "`quiver_operation'")]
        {
            let mut other = words.clone();
            other[at] += 8;
            assert!(check_sizes(&other).is_err_and(|error| error.contains(what)), "{what}");
        }
    }
}
