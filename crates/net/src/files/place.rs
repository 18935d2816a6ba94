//! Where a file is, before it is opened. All that is done with one may wait for a disk: see [`Elsewhere`](super::Elsewhere).

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quiver_command::operation::{OpError, retval};
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};

use super::folder::{Folder, create_part, open_plain, plain};

/// The place of a file, which may not be there yet.
#[derive(Debug, Clone)]
pub struct Place {
    root: Root,
    rest: PathBuf,
    path: PathBuf,
    group: Option<u32>,
}

#[derive(Debug, Clone)]
enum Root {
    /// Below a folder, links excluded.
    Folder(Arc<Folder>),
    /// The operator's own: links on the way are followed, the file itself is still a plain one.
    Anywhere,
}

impl Place {
    pub(super) fn below(folder: Arc<Folder>, rest: PathBuf, group: Option<u32>) -> Self {
        let path = folder.path.join(&rest);
        Self { root: Root::Folder(folder), rest, path, group }
    }

    pub(super) fn anywhere(path: PathBuf, group: Option<u32>) -> Self {
        Self { root: Root::Anywhere, rest: PathBuf::new(), path, group }
    }

    /// The whole path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder that holds it, open, and its name there.
    fn find(&self) -> io::Result<(OwnedFd, OsString)> {
        match &self.root {
            Root::Folder(folder) => folder.walk(&self.rest),
            Root::Anywhere => {
                let parent = self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
                let name = self.path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
                Folder::open(parent, true)?.walk(Path::new(name))
            }
        }
    }

    /// Opens it to be read: a plain file only.
    ///
    /// # Errors
    /// The kernel's, and what is no plain file.
    pub fn open(&self) -> io::Result<File> {
        match &self.root {
            Root::Folder(_) => self.find().and_then(|(folder, name)| open_plain(&folder, &name)),
            // The last part may be a link too.
            Root::Anywhere => {
                let path = self.path.canonicalize()?;
                let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
                let (folder, name) = Folder::open(path.parent().unwrap_or(&path), false)?.walk(Path::new(name))?;
                open_plain(&folder, &name)
            }
        }
    }

    /// Reads it whole.
    ///
    /// # Errors
    /// As [`open`](Self::open), and a file of more than `most` bytes.
    pub fn read(&self, most: u64) -> io::Result<Vec<u8>> {
        let file = self.open()?;
        let too_large = || io::Error::other(format!("has more than {} MB", most >> 20));
        let size = file.metadata()?.len();
        if size > most {
            return Err(too_large());
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        // It may grow meanwhile.
        file.take(most + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > most { Err(too_large()) } else { Ok(bytes) }
    }

    /// Begins a new file, which has its name when it is [finished](NewFile::finish); another of that name is then replaced.
    ///
    /// # Errors
    /// The kernel's, and a name that something else than a plain file has.
    pub fn create(&self) -> io::Result<NewFile> {
        let (folder, name) = self.find()?;
        plain(&folder, &name)?;
        let (file, part) = create_part(&folder, self.group)?;
        Ok(NewFile { file, folder, name, part: Some(part) })
    }

    /// Makes a file that is not there yet: one of the name is an error.
    ///
    /// # Errors
    /// The kernel's, and a file that is there.
    pub fn create_new(&self) -> io::Result<File> {
        let (folder, name) = self.find()?;
        let (file, part) = create_part(&folder, self.group)?;
        // A link is made only where there is nothing: unlike a renaming, it replaces nothing.
        let linked = rustix::fs::linkat(&folder, &part, &folder, &name, AtFlags::empty());
        let _ = unlinkat(&folder, &part, AtFlags::empty());
        linked?;
        Ok(file)
    }

    /// Whether [`create_new`](Self::create_new) would find its folder, and nothing of that name in it.
    ///
    /// # Errors
    /// As it.
    pub fn check_new(&self) -> io::Result<()> {
        let (folder, name) = self.find()?;
        match rustix::fs::statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "file exists")),
            Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a whole file.
    ///
    /// # Errors
    /// As [`create`](Self::create) and those of writing.
    pub fn save(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.create()?;
        file.write_all(bytes)?;
        file.finish().map(drop)
    }

    /// What could not be done with it, as an error of a command.
    pub fn cannot(&self, doing: &str, error: &io::Error) -> OpError {
        let error = match rustix::io::Errno::from_io_error(error) {
            Some(rustix::io::Errno::LOOP | rustix::io::Errno::MLINK) => {
                &io::Error::other("is a symbolic link, which is not followed here")
            }
            _ => error,
        };
        OpError::system(format_args!("cannot {doing} {}", self.path.display()), error).key("file")
    }

    /// The same for a capture file.
    pub fn no_capture(&self, doing: &str, error: &io::Error) -> OpError {
        OpError { code: retval::CANNOT_CREATE_PCAP_FILE, ..self.cannot(doing, error) }
    }
}

/// A file that is being written and has not its name yet. Dropped before that, it goes away.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    folder: OwnedFd,
    name: OsString,
    part: Option<OsString>,
}

impl NewFile {
    /// Gives it its name. It may be written on.
    ///
    /// # Errors
    /// The kernel's, and a name that something else than a plain file has by now.
    pub fn finish(mut self) -> io::Result<File> {
        let file = self.file.try_clone()?;
        plain(&self.folder, &self.name)?;
        if let Some(part) = &self.part {
            // A link or a pipe that came to the name meanwhile is replaced itself: a renaming follows nothing.
            renameat(&self.folder, part, &self.folder, &self.name)?;
        }
        self.part = None;
        Ok(file)
    }
}

impl NewFile {
    /// Gives it its name when it is on the disk, and waits until its name is there too.
    ///
    /// # Errors
    /// As [`finish`](Self::finish), and those of the disk.
    pub fn finish_durably(self) -> io::Result<File> {
        self.file.sync_all()?;
        let folder = openat(&self.folder, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let file = self.finish()?;
        rustix::fs::fsync(&folder)?;
        Ok(file)
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            let _ = unlinkat(&self.folder, part, AtFlags::empty());
        }
    }
}
