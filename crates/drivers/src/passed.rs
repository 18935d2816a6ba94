//! What a process says of descriptors that it passes on to the next one: numbers in a memory file beside them.
//!
//! The reader believes nothing: what is missing is `None`, and what a number means it checks itself.

use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, fcntl_get_seals, memfd_create};

/// Bytes of a file that is read.
const MOST: u64 = 1 << 16;

/// Numbers to be passed on.
#[derive(Debug, Default)]
pub(crate) struct Words(Vec<u32>);

impl Words {
    /// Adds a number.
    pub(crate) fn put(&mut self, word: u32) -> &mut Self {
        self.0.push(word);
        self
    }

    /// A memory file with all of them.
    ///
    /// # Errors
    /// No descriptor or no memory is left.
    pub(crate) fn into_file(self) -> io::Result<OwnedFd> {
        let bytes: Vec<u8> = self.0.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut file = std::fs::File::from(memfd_create("quiver-passed", MemfdFlags::CLOEXEC)?);
        file.write_all(&bytes)?;
        Ok(file.into())
    }
}

/// Numbers that were passed on.
#[derive(Debug)]
pub(crate) struct Reader(std::vec::IntoIter<u32>);

impl Reader {
    /// What a memory file holds; `None` where it is none, or is longer than anything that is passed on.
    pub(crate) fn of(fd: OwnedFd) -> Option<Self> {
        // Files of memory alone have seals; to read anything else could wait.
        fcntl_get_seals(&fd).ok()?;
        let mut file = std::fs::File::from(fd);
        if file.metadata().ok()?.len() > MOST {
            return None;
        }
        let mut bytes = Vec::new();
        file.rewind().ok()?;
        file.take(MOST).read_to_end(&mut bytes).ok()?;
        let (words, rest) = bytes.as_chunks::<4>();
        rest.is_empty().then(|| Self(words.iter().map(|word| u32::from_ne_bytes(*word)).collect::<Vec<_>>().into_iter()))
    }

    /// The next number.
    pub(crate) fn word(&mut self) -> Option<u32> {
        self.0.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_nothing_else_is_read() {
        let mut words = Words::default();
        words.put(7).put(u32::MAX);
        let mut reader = Reader::of(words.into_file().unwrap()).unwrap();
        assert_eq!((reader.word(), reader.word(), reader.word()), (Some(7), Some(u32::MAX), None));
        let (pipe, _writer) = io::pipe().unwrap();
        assert!(Reader::of(pipe.into()).is_none());
        for odd in [3, MOST + 4] {
            let file = memfd_create("odd", MemfdFlags::CLOEXEC).unwrap();
            rustix::fs::ftruncate(&file, odd).unwrap();
            assert!(Reader::of(file).is_none(), "{odd}");
        }
    }
}
