//! Descriptors of which no child of this process has a copy.

use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use crate::sys;

/// A thread with a table of descriptors of its own, which keeps what it has opened until this is dropped.
///
/// A child has copies of all descriptors of the thread that forks until it becomes another program, and what it closes then it
/// may close last: a socket that lingers would do so there, and not at whoever was sent it.
#[derive(Debug)]
pub struct Apart {
    /// Until this is dropped.
    keep: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Apart {
    /// Runs `open` on such a thread, to its end. Of this process's descriptors it has the three standard ones alone.
    ///
    /// # Panics
    /// Where `open` does, and where the system refuses the thread or the table.
    pub fn run<T>(open: impl FnOnce() -> T + Send + 'static) -> Self {
        let ((done, is_done), (keep, is_over)) = (mpsc::channel(), mpsc::channel::<()>());
        let thread = thread::Builder::new().name("apart".into()).spawn(move || {
            sys::own_descriptors().expect("a table of descriptors");
            let opened = open();
            let _ = done.send(());
            let _ = is_over.recv();
            drop(opened);
        });
        let thread = thread.expect("a thread");
        if is_done.recv().is_err() {
            std::panic::resume_unwind(thread.join().expect_err("it has told nothing"));
        }
        Self { keep: Some(keep), thread: Some(thread) }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        drop(self.keep.take());
        // It has come to its end, so it does not panic any more.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
