//! Sessions that the rules do not find from inside: those begun when there were other threads.
//!
//! A session belongs to the thread that its outside port says. From inside the host's address says the thread, and a new session gets a
//! port of that thread, so both agree. When the number of threads has changed, ports belong to other threads and hosts do, too: a session
//! moves with its port, and packets from inside are sent after it by a look-up here.

use std::collections::HashMap;

use crate::config::NatConfig;
use crate::session::{Endpoint, Key, Session, flag};

/// Where such sessions are, by position of the thread.
#[derive(Clone, Debug, Default)]
pub struct Moved {
    keys: HashMap<Key, usize>,
    /// Endpoints inside that have the same outside whatever they speak to.
    ends: HashMap<(Endpoint, u8, u16), usize>,
}

impl Moved {
    /// Those of these sessions that the rules do not find.
    pub fn of(config: &NatConfig, sessions: &[Session]) -> Self {
        let mut moved = Self::default();
        for session in sessions {
            let (position, key) = (config.owner_of_session(session), session.i2o);
            if config.owner_of_internal(key.src(), key.dst(), key.proto(), key.fib()) == position {
                continue;
            }
            moved.keys.insert(key, position);
            if session.flags & flag::INDEPENDENT != 0 {
                moved.ends.insert((key.src(), key.proto(), key.fib()), position);
            }
        }
        moved
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Position of the thread for a packet from inside.
    pub fn find(&self, key: Key) -> Option<usize> {
        let end = || self.ends.get(&(key.src(), key.proto(), key.fib()));
        self.keys.get(&key).or_else(end).copied()
    }

    /// Keys of the sessions on a thread.
    pub fn keys_at(&self, position: usize) -> Vec<Key> {
        self.keys.iter().filter(|(_, at)| **at == position).map(|(key, _)| *key).collect()
    }

    /// Forgets sessions that have ended.
    pub fn forget(&mut self, ended: &[Key]) {
        for key in ended {
            self.keys.remove(key);
        }
        if ended.is_empty() || self.ends.is_empty() {
            return;
        }
        let used: std::collections::HashSet<_> = self.keys.keys().map(|key| (key.src(), key.proto(), key.fib())).collect();
        self.ends.retain(|end, _| used.contains(end));
    }
}
