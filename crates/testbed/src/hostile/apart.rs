//! Descriptors of which no child of this process has a copy.

use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use crate::sys;

/// A thread with its own table of descriptors. What it has opened stays open until this is dropped.
///
/// Between fork and exec, a child has copies of all descriptors. It may be the last one to close a socket that lingers. Then it waits,
/// and not the process that the socket was sent to.
#[derive(Debug)]
pub struct Apart {
    /// The thread waits until this is dropped.
    keep: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Apart {
    /// Runs `open` on such a thread, to its end. The thread has only the three standard descriptors of this process.
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
            std::panic::resume_unwind(thread.join().expect_err("`open` panicked"));
        }
        Self { keep: Some(keep), thread: Some(thread) }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        drop(self.keep.take());
        // `open` has ended, so the thread does not panic any more.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
