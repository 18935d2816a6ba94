//! The file with the process id.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that is there from the start, has a number when the router runs, and is removed with the value.
pub struct PidFile {
    path: PathBuf,
    file: File,
}

impl PidFile {
    /// Makes it, or empties it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Puts the number in.
    ///
    /// # Errors
    /// The kernel's.
    pub fn fill(&mut self) -> io::Result<()> {
        writeln!(self.file, "{}", std::process::id())
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
