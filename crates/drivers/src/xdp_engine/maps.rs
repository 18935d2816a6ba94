//! Maps that a program and we share.

use aya::maps::Array;
use aya::{Ebpf, Pod};

use super::XdpError;
use super::account::{Histogram, value_of};

fn failed(error: impl std::fmt::Display) -> XdpError {
    XdpError::Map(error.to_string())
}

/// Writes an entry.
pub(super) fn set<T: Pod>(ebpf: &mut Ebpf, map: &str, index: u32, value: &T) -> Result<(), XdpError> {
    let map = ebpf.map_mut(map).ok_or_else(|| XdpError::Map(format!("there is no {map}")))?;
    Array::<_, T>::try_from(map).map_err(failed)?.set(index, value, 0).map_err(failed)
}

/// Reads an entry.
pub(super) fn get<T: Pod>(ebpf: &Ebpf, map: &str, index: u32) -> Result<T, XdpError> {
    let map = ebpf.map(map).ok_or_else(|| XdpError::Map(format!("there is no {map}")))?;
    Array::<_, T>::try_from(map).map_err(failed)?.get(&index, 0).map_err(failed)
}

/// Values (to three digits) of a histogram, and how often they were counted.
pub(super) fn histogram(ebpf: &Ebpf, map: &str, index: u32) -> Result<Vec<(u64, u64)>, XdpError> {
    let histogram: Histogram = get(ebpf, map, index)?;
    let cells = histogram.cells.iter().enumerate().filter(|(_, n)| **n > 0);
    Ok(cells.map(|(cell, n)| (value_of(cell), *n)).collect())
}
