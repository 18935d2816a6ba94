//! The file: a compressed archive of bounded size, which nobody else can read, and which has its name when it is whole.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Bytes of one file in the archive.
pub const ENTRY: usize = 8 << 20;
/// Bytes of all, before compression.
const TOTAL: usize = 128 << 20;

/// A file in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its path there.
    pub name: String,
    /// Its bytes.
    pub bytes: usize,
    /// Bytes that were left out at its end.
    pub cut: usize,
}

/// An archive that is written.
pub struct Archive {
    tar: tar::Builder<GzEncoder<File>>,
    folder: String,
    temporary: PathBuf,
    entries: Vec<Entry>,
    left: usize,
}

impl Archive {
    /// Begins one; its files are in `folder`.
    ///
    /// # Errors
    /// No file can be made beside `file`.
    pub fn create(file: &Path, folder: &str) -> io::Result<Self> {
        let mut name = file.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}", std::process::id()));
        let temporary = file.with_file_name(name);
        let out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        let tar = tar::Builder::new(GzEncoder::new(out, Compression::default()));
        Ok(Self { tar, folder: folder.to_owned(), temporary, entries: Vec::new(), left: TOTAL })
    }

    /// Adds a file; what is too much of it is left out.
    ///
    /// # Errors
    /// The disk is full.
    pub fn add(&mut self, name: &str, text: &str) -> io::Result<()> {
        let mut end = text.len().min(ENTRY).min(self.left);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let mut kept = text[..end].to_owned();
        if end < text.len() {
            kept.push_str(&format!("\n... {} bytes left out\n", text.len() - end));
        }
        self.left -= end;
        let mut header = tar::Header::new_gnu();
        header.set_size(kept.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
        self.tar.append_data(&mut header, format!("{}/{name}", self.folder), kept.as_bytes())?;
        self.entries.push(Entry { name: name.to_owned(), bytes: end, cut: text.len() - end });
        Ok(())
    }

    /// Gives it its name, in the place of a file that had it, and says what is in it and how large it is.
    ///
    /// # Errors
    /// The disk is full, or the name cannot be given.
    pub fn finish(mut self, file: &Path) -> io::Result<(Vec<Entry>, u64)> {
        let written = self.write_out().and_then(|bytes| std::fs::rename(&self.temporary, file).map(|()| bytes));
        if written.is_err() {
            let _ = std::fs::remove_file(&self.temporary);
        }
        Ok((self.entries, written?))
    }

    fn write_out(&mut self) -> io::Result<u64> {
        self.tar.finish()?;
        let gzip = self.tar.get_mut();
        gzip.try_finish()?;
        let out = gzip.get_mut();
        out.flush()?;
        out.sync_all()?;
        Ok(out.metadata()?.len())
    }

    /// Removes what was written.
    pub fn abandon(self) {
        let _ = std::fs::remove_file(&self.temporary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn an_archive_is_for_its_owner_alone_and_bounded() {
        let folder = std::env::temp_dir().join(format!("quiverctl-archive-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("b.tar.gz");
        let mut archive = Archive::create(&file, "bundle").unwrap();
        archive.add("small.txt", "small\n").unwrap();
        let large = "\u{20ac}".repeat(ENTRY / 3 + 10);
        for place in 0..20 {
            archive.add(&format!("large-{place}"), &large).unwrap();
        }
        assert!(!file.exists(), "it has its name when it is whole");
        let (entries, bytes) = archive.finish(&file).unwrap();
        assert_eq!(entries[0], Entry { name: "small.txt".to_owned(), bytes: 6, cut: 0 });
        assert!(entries[1].bytes <= ENTRY && entries[1].cut > 0);
        assert!(entries.iter().map(|entry| entry.bytes).sum::<usize>() <= TOTAL);
        let metadata = std::fs::metadata(&file).unwrap();
        assert_eq!((metadata.len(), metadata.permissions().mode() & 0o777), (bytes, 0o600));
        let mut read = tar::Archive::new(flate2::read::GzDecoder::new(File::open(&file).unwrap()));
        let names: Vec<_> = read.entries().unwrap().map(|e| e.unwrap().path().unwrap().display().to_string()).collect();
        assert_eq!((names.len(), names[0].as_str()), (21, "bundle/small.txt"));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
