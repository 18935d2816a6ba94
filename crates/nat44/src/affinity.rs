//! Affinity of load-balanced mappings: for a while a remote host comes back to the inside host that served it last.
//!
//! A client is bound as long as it has a session of the mapping, and so many seconds after its last one has ended, as in VPP. All packets
//! of a client for such a mapping come to the same thread ([`crate::config::NatConfig::owner_of_external`]), so each thread has its own.
//! Where there is no room for more clients, the address alone chooses: that too is the same host every time, as long as the mapping's
//! hosts are the same.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::session::{Endpoint, Session};

/// Clients of a thread.
const CLIENTS_MAX: usize = 1 << 18;

/// A remote host, the outside that it calls, and the protocol.
pub(crate) type Client = (u32, Endpoint, u8);

/// The client that a session from outside belongs to.
pub(crate) fn client_of(session: &Session) -> Client {
    (session.remote().addr, session.outside(), session.i2o.proto())
}

struct Bound {
    local: Endpoint,
    sessions: u32,
    /// How long it lasts without sessions, and until when, seconds.
    lasts: u32,
    until: u32,
}

/// The clients of one thread.
#[derive(Default)]
pub(crate) struct Affinities {
    clients: HashMap<Client, Bound>,
    /// When those without sessions end; some have begun others since.
    ends: BinaryHeap<Reverse<(u32, Client)>>,
}

impl Affinities {
    /// Where a client was served last, if that is not too long ago.
    pub fn find(&self, client: Client, now: u32) -> Option<Endpoint> {
        self.clients.get(&client).filter(|bound| bound.sessions > 0 || now <= bound.until).map(|bound| bound.local)
    }

    /// Whether there is no room for more clients.
    pub fn is_full(&self) -> bool {
        self.clients.len() >= CLIENTS_MAX
    }

    /// A session of a client has begun.
    pub fn hold(&mut self, client: Client, local: Endpoint, lasts: u32) {
        if self.is_full() && !self.clients.contains_key(&client) || self.clients.try_reserve(1).is_err() {
            return;
        }
        let bound = self.clients.entry(client).or_insert(Bound { local, sessions: 0, lasts, until: 0 });
        (bound.local, bound.lasts) = (local, lasts);
        bound.sessions += 1;
    }

    /// A session of a client has ended.
    pub fn release(&mut self, client: Client, now: u32) {
        let Some(bound) = self.clients.get_mut(&client) else { return };
        bound.sessions = bound.sessions.saturating_sub(1);
        if bound.sessions == 0 {
            bound.until = now.saturating_add(bound.lasts);
            self.ends.push(Reverse((bound.until, client)));
        }
    }

    /// Forgets up to `n` clients whose time is over.
    pub fn expire(&mut self, now: u32, n: usize) {
        for _ in 0..n {
            let Some(Reverse((until, client))) = self.ends.peek().copied().filter(|Reverse((until, _))| *until < now) else {
                return;
            };
            self.ends.pop();
            if self.clients.get(&client).is_some_and(|bound| bound.sessions == 0 && bound.until == until) {
                self.clients.remove(&client);
            }
        }
    }

    /// Bytes of memory, about.
    pub fn memory_bytes(&self) -> usize {
        self.clients.capacity() * (size_of::<(Client, Bound)>() + 1) + self.ends.capacity() * size_of::<(u32, Client)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_bound_by_its_sessions_and_a_while_longer() {
        let (client, local) = ((1, Endpoint::new(2, 80), 6), Endpoint::new(3, 8080));
        let mut all = Affinities::default();
        assert_eq!(all.find(client, 100), None);
        all.hold(client, local, 10);
        all.hold(client, local, 10);
        all.release(client, 100);
        assert_eq!(all.find(client, 1000), Some(local), "it has a session");
        all.release(client, 1000);
        assert_eq!((all.find(client, 1010), all.find(client, 1011)), (Some(local), None));
        // One that comes back begins its time anew.
        all.hold(client, local, 10);
        all.expire(1011, 9);
        assert_eq!(all.find(client, 1011), Some(local));
        all.release(client, 1020);
        all.expire(1030, 9);
        assert_eq!(all.find(client, 1030), Some(local));
        all.expire(1031, 9);
        assert!(all.clients.is_empty() && all.ends.is_empty());
    }
}
