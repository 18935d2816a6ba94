//! Loading: the only part that needs CAP_BPF, so a router that has given its rights up has its helper do it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use aya::EbpfLoader;
use aya::maps::{Map, MapData};
use aya::programs::{Program, ProgramError, ProgramFd};

use super::layout::{MAPS, PROGRAMS};

/// The programs; empty where there was no clang when this was built.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/forward.o"));

/// The number of [`load`]'s error where this was built without clang: as a number it gets through to whoever has a helper load.
pub const NO_PROGRAM: i32 = libc::ENOPKG;

/// The loaded programs with their maps.
#[derive(Debug)]
pub struct FastPathFds {
    /// The programs, in the order of their names.
    pub programs: [OwnedFd; PROGRAMS.len()],
    /// Their maps, in the order of their names.
    pub maps: [OwnedFd; MAPS.len()],
}

/// Loads them. It takes some tenths of a second.
///
/// # Errors
/// [`NO_PROGRAM`]; the kernel's, in a line.
pub(crate) fn load() -> io::Result<FastPathFds> {
    if OBJECT.is_empty() {
        return Err(io::Error::from_raw_os_error(NO_PROGRAM));
    }
    let mut ebpf = EbpfLoader::new().btf(None).load(OBJECT).map_err(failed)?;
    let programs: Vec<OwnedFd> = PROGRAMS
        .iter()
        .map(|name| {
            let program = ebpf.program_mut(name).ok_or_else(|| io::Error::other(format!("there is no program {name}")))?;
            verified(program).map_err(failed)?.as_fd().try_clone_to_owned()
        })
        .collect::<io::Result<_>>()?;
    let programs = programs.try_into().map_err(|_| io::Error::other("programs are missing"))?;
    let maps = MAPS.map(|name| {
        let map = ebpf.map(name).and_then(data).ok_or_else(|| io::Error::other(format!("the program has no map {name}")))?;
        map.fd().as_fd().try_clone_to_owned()
    });
    let maps: Vec<OwnedFd> = maps.into_iter().collect::<io::Result<_>>()?;
    let maps = maps.try_into().map_err(|_| io::Error::other("maps are missing"))?;
    Ok(FastPathFds { programs, maps })
}

/// Has the kernel take a program, of those kinds that there are.
fn verified(program: &mut Program) -> Result<&ProgramFd, ProgramError> {
    match program {
        Program::Xdp(program) => {
            program.load()?;
            program.fd()
        }
        Program::SocketFilter(program) => {
            program.load()?;
            program.fd()
        }
        Program::SchedClassifier(program) => {
            program.load()?;
            program.fd()
        }
        _ => Err(ProgramError::UnexpectedProgramType),
    }
}

/// What a map is made of, of those kinds that the program has.
fn data(map: &Map) -> Option<&MapData> {
    match map {
        Map::Array(data)
        | Map::HashMap(data)
        | Map::PerCpuArray(data)
        | Map::XskMap(data)
        | Map::DevMap(data)
        | Map::Queue(data) => Some(data),
        _ => None,
    }
}

/// The kernel's number where there is one; else the first line of what went wrong: the verifier's words come after it.
fn failed(error: impl std::error::Error) -> io::Error {
    let mut text = error.to_string().lines().next().unwrap_or_default().to_owned();
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<io::Error>()
            && let Some(code) = error.raw_os_error()
        {
            return io::Error::from_raw_os_error(code);
        }
        text = format!("{text}: {}", error.to_string().lines().next().unwrap_or_default());
        source = error.source();
    }
    io::Error::other(text)
}
