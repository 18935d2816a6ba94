//! Queues that pass from one process to the next.
//!
//! ```text
//!   old process    sockets bound ───────────────────────► ends: the kernel closes them
//!   new process    program and map by descriptor,          each socket is bound and put into the map
//!                  sockets with memory, rings, buffers     as soon as its queue is free
//! ```
//!
//! A queue has one socket at a time, and a socket's memory is that of the process that made it. So the sockets do not pass on. The program
//! stays attached, and all that takes time is done before: what is left for the end is a bind and an entry of the map for each queue. Frames to be
//! sent wait in the rings until then; frames that arrive in between go to the kernel, as those of a queue without a socket do.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::program::{Program, exchange};
use super::socket::{Addresses, Binding, Halves, Opening};
use super::{AfXdp, AfXdpConfig, AfXdpError, Attached, promiscuous};
use crate::closer::Later;
use crate::netdev::NetDevice;
use crate::passed::{Reader, Words};

/// What the descriptors are, with the version of that: a router that knows another one does not ask for these.
pub(crate) const KIND: &str = "af_xdp-1";
/// How often a queue is tried that the process before still has.
const AGAIN: Duration = Duration::from_millis(1);

/// By what the next process asks for a device.
fn key(config: &AfXdpConfig) -> String {
    format!("{KIND} {}", config.name)
}

/// The attached program of the process before.
pub(super) struct Inherited {
    link: OwnedFd,
    program: Program,
    native: bool,
    pieces: bool,
}

/// What the process before this one has on the device. `None` where it is another device, or its map is for other queues.
pub(super) fn take(config: &AfXdpConfig, device: &NetDevice, queues: u32) -> Option<Inherited> {
    let fds: [OwnedFd; 4] = config.rights.inherited(&key(config))?.try_into().ok()?;
    let [link, map, program, facts] = fds;
    let mut facts = Reader::of(facts)?;
    let is_same = facts.word()? == device.index && facts.word()? == queues;
    let [native, frags, pieces] = [facts.word()? != 0, facts.word()? != 0, facts.word()? != 0];
    is_same.then(|| Inherited { link, program: Program::of([map, program], frags), native, pieces })
}

impl Inherited {
    /// Makes all ready for the moment at which the queues are free.
    pub(super) fn prepare(
        self,
        config: &AfXdpConfig,
        device: &NetDevice,
        queues: u32,
        addresses: Addresses,
    ) -> Result<(Attached, Vec<Halves>, Option<Binding>), AfXdpError> {
        let failed = |what| move |error| AfXdpError::of(what, &config.name, error);
        let opening = Opening { config, addresses, device: device.index, pieces: self.pieces };
        let halves = opening.prepare(queues)?;
        let binding = opening.binding(&halves).map_err(failed("opening an AF_XDP socket"))?;
        let promiscuous = promiscuous(device.index).map_err(failed("making the device promiscuous"))?;
        config.rights.note(format!("XDP program of {}", config.name), Ok(()));
        let program = Arc::new(self.program);
        let fast = AtomicBool::new(false);
        let attached = Attached { link: Some(self.link), program, _promiscuous: promiscuous, native: self.native, fast };
        Ok((attached, halves, Some(binding)))
    }
}

impl AfXdp {
    /// What the next process needs.
    pub(super) fn as_inheritance(&self) -> io::Result<Option<(String, Vec<OwnedFd>)>> {
        let Attached { link: Some(link), program, native, .. } = &*self.attached else { return Ok(None) };
        let pieces = self.sockets.iter().filter_map(std::sync::Weak::upgrade).all(|socket| socket.pieces);
        let mut facts = Words::default();
        facts.put(self.bound).put(self.rx.len() as u32);
        facts.put((*native).into()).put(program.frags.into()).put(pieces.into());
        let [map, code] = program.descriptors()?;
        Ok(Some((key(&self.config), vec![link.try_clone()?, map, code, facts.into_file()?])))
    }

    /// The process before this one stops: binds the sockets when it lets go of the queues. A thread waits for that, since the end of
    /// a process takes its time.
    pub(super) fn end_wait(&mut self) -> io::Result<()> {
        let Some(binding) = self.waiting.take() else { return Ok(()) };
        let (program, failed) = (Arc::clone(&self.attached.program), Arc::clone(&self.unbound));
        // Where the process before had the device run its fast path, whose sockets are its own.
        self.attached.link.as_ref().map_or(Ok(()), |link| exchange(link, program.raw()))?;
        let bind = move || {
            if bind_when_free(&binding, &program).is_err() {
                failed.store(true, Ordering::Relaxed);
            }
        };
        let started = std::thread::Builder::new().name("af_xdp-bind".to_owned()).spawn(bind);
        started.map(drop).inspect_err(|_| self.unbound.store(true, Ordering::Relaxed))
    }

    /// Lets go of what was inherited where the sockets could not be bound: the device is to be opened anew.
    pub(super) fn give_up(&mut self) -> bool {
        let given_up = self.unbound.swap(false, Ordering::Relaxed);
        if given_up {
            drop(Later::new(self.attached.link.take()));
        }
        given_up
    }
}

/// Binds each socket and directs the queue's frames to it. Ends early when the interface is gone.
fn bind_when_free(binding: &Binding, program: &Program) -> io::Result<()> {
    for (queue, socket) in binding.sockets.iter().enumerate() {
        loop {
            match binding.bind_one(queue) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                done => break done?,
            }
            if Arc::strong_count(socket) == 1 {
                return Ok(());
            }
            std::thread::sleep(AGAIN);
        }
        program.direct(queue as u32, socket.fd()?)?;
        // What has waited in the ring; a device that is down takes it later.
        let _ = socket.send();
    }
    Ok(())
}
