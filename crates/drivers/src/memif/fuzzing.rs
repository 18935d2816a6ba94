//! A bench for the fuzz target `memif_control`: interfaces of both roles, and a peer that says what the input says.

use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use quiver_graph::Port;
use rustix::fs::{MemfdFlags, fcntl_get_seals, ftruncate, memfd_create};

use super::event::new_event;
use super::memory::COOKIE;
use super::message::MESSAGE_BYTES;
use super::socket::{self, Received};
use super::{Key, Memif, MemifConfig, MemifPort, Role};

const SERVER: Key = Key { socket: 1, id: 0 };
const CLIENT: Key = Key { socket: 2, id: 0 };
/// Bytes of the memory that the peer offers.
const MEMORY: u64 = 1 << 16;

/// Interfaces and what a peer has to offer.
pub struct Bench {
    folder: PathBuf,
    memif: Memif,
    server: MemifPort,
    client: MemifPort,
    /// Where the client interface connects to.
    listener: OwnedFd,
    memory: OwnedFd,
    event: OwnedFd,
}

impl Bench {
    /// Runs `work` on the bench of this thread.
    pub fn with(work: impl FnOnce(&mut Self)) {
        thread_local! {
            static BENCH: RefCell<Option<Bench>> = const { RefCell::new(None) };
        }
        BENCH.with_borrow_mut(|bench| work(bench.get_or_insert_with(|| Self::new().expect("a bench"))));
    }

    fn new() -> Result<Self, Box<dyn std::error::Error>> {
        let folder =
            std::env::temp_dir().join(format!("quiver-memif-fuzz-{}-{:?}", std::process::id(), std::thread::current().id()));
        std::fs::create_dir_all(&folder)?;
        let path = |name| folder.join(name).to_string_lossy().into_owned();
        let memif = Memif::new(&path("0"))?;
        memif.add_socket(1, &path("1"))?;
        memif.add_socket(2, &path("2"))?;
        let listener = socket::listener(&path("2"), None, drop)?;
        let mut server = memif.create(MemifConfig { role: Role::Server, ..MemifConfig::new(SERVER) })?;
        server.set_up(true)?;
        let client = memif.create(MemifConfig { ring_size: 4, buffer_size: 64, ..MemifConfig::new(CLIENT) })?;
        let memory = memory()?;
        Ok(Self { folder, memif, server, client, listener, memory, event: new_event()? })
    }

    /// A conversation as the input has it. The first byte chooses the peer's role; then, for each message, a byte with its
    /// type (low four bits) and the descriptor that comes with it (next two), a byte with the number of further bytes.
    pub fn converse(&mut self, input: &[u8]) {
        let Some((&role, mut rest)) = input.split_first() else { return };
        if !fcntl_get_seals(&self.memory).is_ok_and(|seals| seals.is_empty()) {
            // It was in use.
            self.memory = memory().expect("memory");
        }
        let peer = if role & 1 == 0 {
            socket::dial(&self.folder.join("1").to_string_lossy()).expect("the server listens")
        } else {
            self.client.set_up(false).expect("down");
            self.client.set_up(true).expect("up");
            socket::accept(&self.listener).expect("the client connects")
        };
        settle(&self.memif);
        while let [kind, len, tail @ ..] = rest {
            let (fields, tail) = tail.split_at(usize::from(len & 127).min(tail.len()));
            rest = tail;
            let mut bytes = vec![kind & 15, 0];
            bytes.extend(fields);
            // Mostly of the right size.
            if kind & 0xc0 != 0xc0 {
                bytes.resize(MESSAGE_BYTES, 0);
            }
            let fd = match (kind >> 4) & 3 {
                0 => None,
                1 => Some(self.memory.as_fd()),
                2 => Some(self.event.as_fd()),
                _ => Some(peer.as_fd()),
            };
            let _ = socket::send_bytes(&peer, &bytes, fd);
            settle(&self.memif);
            while let Received::Bytes(..) = socket::receive(&peer) {}
        }
        drop(peer);
        settle(&self.memif);
        assert!(!self.server.link().up && !self.client.link().up, "a connection outlived its peer");
        assert!(self.memif.interface(SERVER).is_some_and(|i| i.channel.is_none()), "a dead peer still holds the interface");
    }
}

/// What a peer offers: rings wherever one might be announced.
fn memory() -> Result<OwnedFd, rustix::io::Errno> {
    let memory = memfd_create(c"peer", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&memory, MEMORY)?;
    let word = u64::from(COOKIE).to_ne_bytes();
    rustix::io::pwrite(&memory, &word.repeat(MEMORY as usize / 8), 0)?;
    Ok(memory)
}

/// Runs the control side until it is done with all that peers have sent.
pub(super) fn settle(memif: &Memif) {
    let Ok(fd) = memif.fd() else { return };
    loop {
        memif.run();
        let busy = memif.sockets().iter().any(|s| s.unfinished > 0);
        if !crate::sys::wait_readable(&fd, if busy { 10 } else { 0 }).unwrap_or(false) && !busy {
            return;
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memif::message::{AddRing, Init, Message, VERSION};

    /// The input that makes the peer say this.
    fn said(message: &Message, descriptor: u8) -> Vec<u8> {
        let bytes = message.emit();
        let end = bytes.iter().rposition(|b| *b != 0).unwrap_or(0).max(2);
        let mut input = vec![bytes[0] | descriptor << 4, (end - 1) as u8];
        input.extend(&bytes[2..=end]);
        input
    }

    /// The conversations that the fuzzer starts from, one for each role; written to files by hand where they change.
    fn seeds() -> [(&'static str, Vec<u8>); 2] {
        let ring = |to_server| {
            Message::AddRing(AddRing { to_server, log2_size: 2, offset: if to_server { 0 } else { 256 }, ..AddRing::default() })
        };
        let client = [
            vec![0],
            said(&Message::Init(Init { version: VERSION, ..Init::default() }), 0),
            said(&Message::AddRegion { index: 0, size: MEMORY }, 1),
            said(&ring(true), 2),
            said(&ring(false), 2),
            said(&Message::Connect("x".into()), 0),
        ];
        let hello = super::super::session::hello();
        let mut server = vec![vec![1], said(&hello, 0)];
        server.extend((0..4).map(|_| said(&Message::Ack, 0)));
        server.push(said(&Message::Connected("y".into()), 0));
        [("seed-client", client.concat()), ("seed-server", server.concat())]
    }

    #[test]
    fn the_seeds_of_the_fuzz_target_connect() {
        for (name, seed) in seeds() {
            let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/regressions/memif_control/").to_owned() + name;
            if std::env::var_os("QUIVER_WRITE_SEEDS").is_some() {
                std::fs::write(&file, &seed).unwrap();
            }
            assert_eq!(std::fs::read(&file).unwrap(), seed, "{file}");
            // All but the end of the peer: the connection stands.
            Bench::with(|bench| {
                bench.converse(&seed);
                assert!(bench.memif.run().is_empty());
            });
        }
    }
}
