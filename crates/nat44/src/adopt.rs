//! Sessions that a thread takes up from elsewhere: from the process before this one, or from another thread.

use crate::config::NatConfig;
use crate::session::Session;
use crate::table::SessionId;
use crate::thread::ThreadNat;

impl ThreadNat {
    /// Takes up the sessions of the process before this one, and ends those that it does not have. Gives their number.
    pub(crate) fn adopt(&mut self, config: &NatConfig, sessions: &[Session], ends: bool) -> u64 {
        self.untold(|nat| {
            let mut said = vec![false; nat.sessions.end() as usize];
            let mut n = 0;
            for session in sessions {
                let Some(id) = nat.take_up(config, session, |_, new| *new) else { continue };
                n += 1;
                let at = id as usize;
                said.resize(said.len().max(at + 1), false);
                said[at] = true;
            }
            for id in (0..nat.sessions.end()).filter(|id| ends && !said.get(*id as usize).is_some_and(|said| *said)) {
                nat.remove(id);
            }
            n
        })
    }

    /// Takes up sessions of other threads; of one that is here already both have seen packets. Gives how many there was no room for.
    pub(crate) fn take_over(&mut self, config: &NatConfig, sessions: &[Session]) -> u64 {
        let both = |here: &Session, there: &Session| Session {
            last_heard: here.last_heard.max(there.last_heard),
            tcp: here.tcp | there.tcp,
            bytes: here.bytes.max(there.bytes),
            packets: here.packets.max(there.packets),
            ..*here
        };
        self.untold(|nat| sessions.iter().filter(|session| nat.take_up(config, session, both).is_none()).count() as u64)
    }

    /// Lets sessions with numbers `from..to` go that are another thread's now, and gives them.
    pub(crate) fn let_go(&mut self, from: SessionId, to: SessionId, is_mine: impl Fn(&Session) -> bool) -> Vec<Session> {
        self.untold(|nat| {
            let others = |id: &SessionId| nat.sessions.get(*id).is_some_and(|session| !is_mine(&session));
            let ids: Vec<SessionId> = (from..to.min(nat.sessions.end())).filter(others).collect();
            ids.into_iter().filter_map(|id| nat.remove(id)).collect()
        })
    }

    /// Runs `f` without lines in the session log, and without counts of sessions begun or ended.
    fn untold<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        let log = std::mem::take(&mut self.log);
        let (begun, ended) = (self.begun, self.ended);
        let result = f(self);
        (self.log, self.begun, self.ended) = (log, begun, ended);
        result
    }

    fn take_up(
        &mut self,
        config: &NatConfig,
        session: &Session,
        known: impl Fn(&Session, &Session) -> Session,
    ) -> Option<SessionId> {
        match self.sessions.find(session.i2o) {
            Some(id) if self.sessions.find(session.o2i) == Some(id) => {
                let here = self.sessions.get(id)?;
                self.sessions.update(id, &known(&here, session));
                Some(id)
            }
            other => {
                other.and_then(|id| self.remove(id));
                self.add(config, session).ok()
            }
        }
    }
}
