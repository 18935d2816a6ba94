//! `BPF_PROG_TEST_RUN`: the thread that sends.

use std::ffi::c_int;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::bpf::bpf;
use crate::sys;

const BPF_PROG_TEST_RUN: c_int = 10;
const BPF_F_TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;
/// Runs of one call: at 0.1 µs for one that sends nothing, minutes.
const REPEAT: u32 = u32::MAX;

/// The part of `union bpf_attr` that running a program uses.
#[repr(C)]
#[derive(Default)]
struct TestAttributes {
    program: u32,
    returned: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_size_in: u32,
    context_size_out: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    padding: u32,
}
const _: () = assert!(size_of::<TestAttributes>() == 80);

/// Runs the program once over a copy of `frame`, and returns what has become of it, and the verdict.
pub(crate) fn once(program: RawFd, frame: &[u8]) -> io::Result<(Vec<u8>, u32)> {
    let mut out = vec![0_u8; frame.len()];
    let mut attributes = TestAttributes {
        program: program as u32,
        data_size_in: frame.len() as u32,
        data_size_out: out.len() as u32,
        data_in: frame.as_ptr() as u64,
        data_out: out.as_mut_ptr() as u64,
        repeat: 1,
        ..Default::default()
    };
    bpf(BPF_PROG_TEST_RUN, &mut attributes)?;
    out.truncate(attributes.data_size_out as usize);
    Ok((out, attributes.returned))
}

/// Now, ns of CLOCK_MONOTONIC, by which programs tell the time.
pub(super) fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A thread that sends.
pub(super) struct Running {
    thread: JoinHandle<()>,
    stop: Arc<AtomicBool>,
    failure: Arc<Mutex<Option<String>>>,
}

impl Running {
    /// Sends with live frames of these bytes, until it is stopped. The caller keeps the program open that long.
    pub(super) fn start(program: RawFd, frame: Vec<u8>, batch: u32, core: Option<u32>) -> io::Result<Self> {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(install_handler);
        let (stop, failure) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let (stopped, failed) = (stop.clone(), failure.clone());
        let work = move || {
            if let Some(core) = core {
                pin(core);
            }
            while !stopped.load(Ordering::Acquire) {
                let mut attributes = TestAttributes {
                    program: program as u32,
                    data_size_in: frame.len() as u32,
                    data_in: frame.as_ptr() as u64,
                    repeat: REPEAT,
                    flags: BPF_F_TEST_XDP_LIVE_FRAMES,
                    batch_size: batch,
                    ..Default::default()
                };
                match bpf(BPF_PROG_TEST_RUN, &mut attributes) {
                    Ok(_) => {}
                    Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                    Err(error) => {
                        let text = format!("sending failed: {error}");
                        *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
                        return;
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("xdp-tx".to_owned()).spawn(work)?;
        Ok(Self { thread, stop, failure })
    }

    /// Why it ended by itself.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the system call, and the thread.
    pub(super) fn stop(self) {
        self.stop.store(true, Ordering::Release);
        while !self.thread.is_finished() {
            // SAFETY: the thread has not been joined, so its handle is valid; the signal has a handler that does nothing.
            unsafe { libc::pthread_kill(self.thread.as_pthread_t(), signal()) };
            // A signal that came before the call has no effect: another one will.
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.thread.join();
    }
}

/// A signal that nobody else uses.
fn signal() -> c_int {
    libc::SIGRTMIN() + 7
}

extern "C" fn nothing(_: c_int) {}

/// Has the signal interrupt system calls, and do nothing else.
fn install_handler() {
    // SAFETY: an all-zero sigaction is a valid one: no flags (so calls are not restarted), an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
    // SAFETY: the action is whole, and its handler touches nothing.
    let _ = sys::check(unsafe { libc::sigaction(signal(), &raw const action, std::ptr::null_mut()) });
}

/// Keeps the calling thread on a core; where the system does not allow it, it stays free.
fn pin(core: u32) {
    let mut set = rustix::thread::CpuSet::new();
    if (core as usize) < rustix::thread::CpuSet::MAX_CPU {
        set.set(core as usize);
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}
