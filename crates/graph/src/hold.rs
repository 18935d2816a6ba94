//! Threads that do not bring packets in: before and after a restart in which another process takes over.
//!
//! ```text
//!   the old process   None ──────────── forwards ───────────► Receive: finishes what it has, and ends
//!   the new process   All: builds everything, touches no packet ─────────────────────────────► None
//! ```

use crate::graph::Graph;

/// What the threads of a graph leave to another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hold {
    /// Nothing: packets come and go.
    #[default]
    None,
    /// No packets are brought in; those that are here go on and are sent.
    Receive,
    /// Nothing is brought in and nothing is sent: what would be sent is dropped and counted.
    All,
}

impl Graph {
    /// Sets what all threads, those to come too, leave to another process. When it returns, every thread has seen the change between
    /// two vectors, and has run what it had to its end.
    pub fn set_hold(&mut self, hold: Hold) {
        self.shared_mut().hold = hold;
        self.fleet().each(move |worker| worker.set_hold(hold));
    }

    /// What the threads leave to another process.
    pub fn hold(&mut self) -> Hold {
        self.shared_mut().hold
    }

    /// Throws away what waits in all receive queues, while another process handles the same packets: so there is room for those that
    /// come from now on.
    pub fn discard_held(&mut self) {
        self.fleet().each(|worker| worker.each_input(|node| node.discard()));
    }

    /// Begins to bring packets in and to send, in place of another process that stopped at `since` (ns of the kernel's wall clock).
    pub fn begin(&mut self, since: u64) {
        self.shared_mut().hold = Hold::None;
        self.fleet().each(move |worker| {
            worker.each_input(|node| node.begin(since));
            worker.set_hold(Hold::None);
        });
    }
}
