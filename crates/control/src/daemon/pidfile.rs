//! The file with the process id.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that is there from the start, has a number when the router runs, and is removed with the value.
pub struct PidFile {
    path: PathBuf,
    file: File,
    /// Not where the number is still another process's.
    is_ours: bool,
}

impl PidFile {
    /// Makes it, or empties it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        Ok(Self { path: path.to_owned(), file, is_ours: true })
    }

    /// Opens that of the process before this one, which stays as it is until it is [filled](Self::fill).
    ///
    /// # Errors
    /// The kernel's.
    pub fn inherit(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        Ok(Self { path: path.to_owned(), file, is_ours: false })
    }

    /// Puts the number in.
    ///
    /// # Errors
    /// The kernel's.
    pub fn fill(&mut self) -> io::Result<()> {
        self.is_ours = true;
        self.file.set_len(0)?;
        writeln!(self.file, "{}", std::process::id())
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}
