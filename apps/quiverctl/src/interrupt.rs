//! Ctrl-C cancels what runs; a second one, or one while nothing runs, ends the program.

use crate::connection::{Connection, Stream};
use quiver_command::session::frames::Call;
use signal_hook::{consts::SIGINT, iterator::Signals};
use std::{
    io::{self, Write},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// What a shell reports for a program that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

static RUNNING: AtomicBool = AtomicBool::new(false);
static CANCELLED: AtomicBool = AtomicBool::new(false);
/// Where a cancel frame goes. The connection may be a new one after the first was lost.
static CANCELLER: Mutex<Option<Stream>> = Mutex::new(None);

/// Marks that a call runs, until it is dropped.
pub struct Running(());

/// A call begins.
pub fn running() -> Running {
    CANCELLED.store(false, Ordering::Relaxed);
    RUNNING.store(true, Ordering::Relaxed);
    Running(())
}

/// Whether the last call was cancelled.
pub fn cancelled() -> bool {
    CANCELLED.load(Ordering::Relaxed)
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.store(false, Ordering::Relaxed);
    }
}

/// Lets Ctrl-C cancel calls over this connection from now on.
pub fn watch(connection: &Connection) -> io::Result<()> {
    let canceller = connection.canceller()?;
    let before = CANCELLER.lock().unwrap_or_else(PoisonError::into_inner).replace(canceller);
    if before.is_some() {
        return Ok(());
    }
    let mut signals = Signals::new([SIGINT])?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            let second = CANCELLED.swap(true, Ordering::Relaxed);
            if second || !RUNNING.load(Ordering::Relaxed) || cancel().is_err() {
                std::process::exit(INTERRUPTED);
            }
        }
    });
    Ok(())
}

fn cancel() -> io::Result<()> {
    let cancel = Call { cancel: Some(true.into()), ..Call::default() };
    match &mut *CANCELLER.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(stream) => stream.write_all(cancel.to_line().as_bytes()),
        None => Err(io::ErrorKind::NotConnected.into()),
    }
}
