//! Maps of the program, by their descriptors.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::bpf::bpf;

const BPF_MAP_LOOKUP_ELEM: c_int = 1;
const BPF_MAP_UPDATE_ELEM: c_int = 2;
const BPF_MAP_DELETE_ELEM: c_int = 3;
const BPF_MAP_LOOKUP_AND_DELETE_ELEM: c_int = 21;

/// The part of `union bpf_attr` that entries use.
#[repr(C)]
#[derive(Default)]
struct EntryAttributes {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}
const _: () = assert!(size_of::<EntryAttributes>() == 32);

/// A map whose entries are reached by calls.
#[derive(Debug)]
pub(super) struct Entries {
    fd: OwnedFd,
    key: usize,
    value: usize,
}

impl Entries {
    /// Of keys and values of so many bytes. They are checked at each call: the kernel reads and writes as many as the map was made with.
    pub fn new(fd: OwnedFd, key: usize, value: usize) -> Self {
        Self { fd, key, value }
    }

    fn call(&self, command: c_int, key: &[u8], value: u64) -> io::Result<()> {
        assert_eq!(key.len(), self.key);
        let map = self.fd.as_raw_fd() as u32;
        let key = if key.is_empty() { 0 } else { key.as_ptr() as u64 };
        bpf(command, &mut EntryAttributes { map, key, value, ..Default::default() }).map(drop)
    }

    /// Writes an entry.
    pub fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert_eq!(value.len(), self.value);
        self.call(BPF_MAP_UPDATE_ELEM, key, value.as_ptr() as u64)
    }

    /// Removes an entry; one that is not there is no error.
    pub fn remove(&self, key: &[u8]) -> io::Result<()> {
        match self.call(BPF_MAP_DELETE_ELEM, key, 0) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            result => result,
        }
    }

    /// Reads an entry.
    pub fn get(&self, key: &[u8], value: &mut [u8]) -> io::Result<()> {
        assert_eq!(value.len(), self.value);
        self.call(BPF_MAP_LOOKUP_ELEM, key, value.as_mut_ptr() as u64)
    }

    /// Takes the oldest entry of a queue; `false` where there is none.
    pub fn take(&self, value: &mut [u8]) -> io::Result<bool> {
        assert_eq!(value.len(), self.value);
        match self.call(BPF_MAP_LOOKUP_AND_DELETE_ELEM, &[], value.as_mut_ptr() as u64) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// A map with an entry for each processor that can be.
#[derive(Debug)]
pub(super) struct PerProcessor<const N: usize> {
    entries: Entries,
    room: Vec<u8>,
}

impl<const N: usize> PerProcessor<N> {
    /// Of entries of `N` words.
    pub fn new(fd: OwnedFd, processors: usize) -> Self {
        let bytes = processors * N * 8;
        Self { entries: Entries::new(fd, 4, bytes), room: vec![0; bytes] }
    }

    /// The sums of an entry's words over the processors.
    pub fn sums(&mut self, index: u32) -> io::Result<[u64; N]> {
        self.entries.get(&index.to_ne_bytes(), &mut self.room)?;
        let mut sums = [0_u64; N];
        for one in self.room.chunks_exact(N * 8) {
            for (sum, word) in sums.iter_mut().zip(one.as_chunks::<8>().0) {
                *sum = sum.wrapping_add(u64::from_ne_bytes(*word));
            }
        }
        Ok(sums)
    }
}

/// Processors that can be, as the kernel counts them (`0-7`, `0,2-3`): the last number and one.
pub(super) fn processors() -> io::Result<usize> {
    count(&std::fs::read_to_string("/sys/devices/system/cpu/possible")?)
        .ok_or_else(|| io::Error::other("/sys/devices/system/cpu/possible is not a list of processors"))
}

fn count(list: &str) -> Option<usize> {
    let numbers = list.trim().split([',', '-']).map(|n| n.parse::<usize>().ok());
    numbers.collect::<Option<Vec<_>>>()?.into_iter().max().map(|last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted_to_the_last_one() {
        for (list, n) in [("0\n", Some(1)), ("0-7\n", Some(8)), ("0,2-3", Some(4)), ("", None), ("x", None)] {
            assert_eq!(count(list), n, "{list:?}");
        }
        assert!(processors().unwrap() >= 1);
    }
}
