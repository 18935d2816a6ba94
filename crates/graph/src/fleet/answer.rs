//! What another thread answers.

use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::thread::Handle;
use crate::worker::Worker;

/// An answer that a thread has been asked for. It comes by a place in memory, and a channel without content says that it is there: a channel
/// for each type of answer would be code for each, some 20 kB.
pub(super) struct Awaited<R> {
    place: Arc<Mutex<Option<R>>>,
    there: Receiver<()>,
}

impl<R: Send + 'static> Awaited<R> {
    /// Has a thread run `f` between two vectors.
    pub(super) fn ask(handle: &Handle, f: impl FnOnce(&mut Worker) -> R + Send + 'static) -> Self {
        let place = Arc::new(Mutex::new(None));
        let (given, there) = bounded(1);
        let theirs = Arc::clone(&place);
        handle.send(Box::new(move |worker| {
            let answer = f(worker);
            *theirs.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
            give(&given);
        }));
        Self { place, there }
    }

    /// Waits for it; none if the thread has ended.
    pub(super) fn get(self) -> Option<R> {
        wait(&self.there);
        self.place.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn give(given: &Sender<()>) {
    // Nobody waits any more if this fails.
    let _ = given.send(());
}

fn wait(there: &Receiver<()>) {
    // It fails if the thread has ended, which has left nothing in the place then.
    let _ = there.recv();
}
