//! Where plugins lie.

use std::fs;
use std::path::{Path, PathBuf};

/// A file that may be a plugin.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    /// Its name.
    pub file: String,
    /// Where it is.
    pub path: PathBuf,
}

/// A plugin's name without what its file has beside it: `libttl_guard.so` and `ttl-guard` are the same.
fn bare(name: &str) -> String {
    let name = name.strip_suffix(".so").unwrap_or(name);
    let name = name.strip_suffix("_plugin").unwrap_or(name);
    name.strip_prefix("lib").unwrap_or(name).replace('-', "_")
}

/// Whether two names mean the same plugin.
pub fn names(one: &str, other: &str) -> bool {
    bare(one) == bare(other)
}

/// The shared objects of these folders, by name; of two with one name that of the first folder. A folder that is not there has none.
pub fn find(folders: &[PathBuf]) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    for folder in folders {
        let mut here = read(folder);
        here.sort();
        here.retain(|one| !found.iter().any(|other| names(&other.file, &one.file)));
        found.extend(here);
    }
    found
}

fn read(folder: &Path) -> Vec<Found> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let found = |entry: fs::DirEntry| {
        let file = entry.file_name().into_string().ok()?;
        file.ends_with(".so").then(|| Found { file, path: entry.path() })
    };
    entries.filter_map(found).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_without_what_files_add() {
        for other in ["ttl_guard", "ttl-guard", "ttl_guard.so", "libttl_guard.so", "ttl_guard_plugin.so"] {
            assert!(names("ttl_guard.so", other), "{other}");
        }
        assert!(!names("ttl_guard", "guard"));
        assert_eq!(find(&[PathBuf::from("/no/such/folder")]), []);
    }
}
