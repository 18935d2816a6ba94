//! A log file that is opened anew when it is asked for, as whoever rotates logs wants it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set by SIGHUP; the next line goes to a file that is opened anew.
static ANEW: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// What a signal sets to have the log's file opened anew with the next line.
pub fn anew() -> Arc<AtomicBool> {
    Arc::clone(&ANEW)
}

/// A file that lines are appended to.
pub struct LogFile {
    path: PathBuf,
    file: File,
    anew: Arc<AtomicBool>,
}

impl LogFile {
    /// Opens it; file and folder are made where they are missing, as `/var/log/vpp` after a fresh install.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: open_append(path)?, anew: anew() })
    }

    /// Whether it is a file, and no terminal or pipe.
    ///
    /// # Errors
    /// The kernel's.
    pub fn is_file(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.is_file())
    }
}

fn open_append(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
        fs::create_dir_all(folder)?;
    }
    OpenOptions::new().create(true).append(true).open(path)
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.anew.swap(false, Ordering::Relaxed) {
            match open_append(&self.path) {
                Ok(file) => self.file = file,
                Err(error) => {
                    writeln!(self.file, "the log goes on in this file: {} cannot be opened: {error}", self.path.display())?
                }
            }
        }
        self.file.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_in_a_missing_folder_is_made_appended_to_and_opened_anew() {
        let folder = std::env::temp_dir().join(format!("quiver-log-{}", std::process::id()));
        let (path, old) = (folder.join("log/vpp/vpp.log"), folder.join("log/vpp/vpp.log.1"));
        for line in ["one\n", "two\n"] {
            LogFile::open(&path).unwrap().write_all(line.as_bytes()).unwrap();
        }
        let mut log = LogFile { anew: Arc::default(), ..LogFile::open(&path).unwrap() };
        fs::rename(&path, &old).unwrap();
        log.write_all(b"three\n").unwrap();
        log.anew.store(true, Ordering::Relaxed);
        log.write_all(b"four\n").unwrap();
        assert_eq!(
            (fs::read_to_string(&old).unwrap().as_str(), fs::read_to_string(&path).unwrap().as_str()),
            ("one\ntwo\nthree\n", "four\n")
        );
        // Where there is no way to it, it goes on.
        fs::remove_dir_all(&folder).unwrap();
        fs::write(&folder, "").unwrap();
        log.anew.store(true, Ordering::Relaxed);
        log.write_all(b"five\n").unwrap();
        fs::remove_file(&folder).unwrap();
    }
}
