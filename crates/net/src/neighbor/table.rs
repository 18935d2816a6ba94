//! The neighbour table of one family on the main thread: entries, their timers, and its limits. Pure: it knows neither the
//! router nor the FIB, and time is a parameter.

use std::collections::{BTreeMap, BTreeSet};

use quiver_wire::MacAddr;

use super::hold::Key;
use super::state::{Due, Effect, Evidence, Reach, SECOND, State};

/// Neighbours that are asked for at a time; a scan of a big prefix pushes out those asked for longest (RFC 6583, 6.2).
pub(crate) const PENDING_MAX: usize = 4096;

/// Limits of a family's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborConfig {
    /// Most dynamic entries; 0: no limit.
    pub limit: u32,
    /// Seconds after which an entry that nothing was heard of is probed, and removed if it does not answer; 0: only those
    /// in use are probed.
    pub age: u32,
    /// Whether a new entry takes the place of the one that was heard of longest ago where the limit is reached.
    pub recycle: bool,
    /// Whether those in use are asked now and then whether they are still there (RFC 4861, section 7.3). Without it a
    /// dynamic entry stays until its age.
    pub probe: bool,
    /// Whether addresses of ours are announced when they come up, without being asked for.
    pub announce: bool,
}

impl Default for NeighborConfig {
    fn default() -> Self {
        Self { limit: 50_000, age: 0, recycle: false, probe: true, announce: true }
    }
}

/// Figures of a family's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeighborFigures {
    /// Entries now.
    pub entries: usize,
    /// Of them, asked for and not answered yet.
    pub pending: usize,
    /// Entries refused because the limit was reached.
    pub refused: u64,
    /// Entries whose place another one took.
    pub recycled: u64,
    /// Neighbours that did not answer.
    pub lost: u64,
    /// Duplicates of own addresses that were noticed.
    pub conflicts: u64,
}

/// An entry.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub reach: Reach,
    /// No host route in the FIB.
    pub no_fib: bool,
    /// The user said so, and nothing was heard of it yet: it may be one that cannot answer, so only an age limit makes it
    /// be asked.
    configured: bool,
    /// When it was last heard of.
    pub heard: u64,
    /// When its timer runs out.
    due: Option<u64>,
    /// Packets sent to it when its use was last looked at.
    sent: u64,
}

impl Entry {
    pub fn is_static(&self) -> bool {
        self.reach.state == State::Permanent
    }
}

/// What became of an attempt to make an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// It is there; these had to go for it.
    Yes(Option<Key>),
    /// The table is full.
    Full,
}

/// All entries of a family.
pub(crate) struct Table {
    pub config: NeighborConfig,
    entries: BTreeMap<Key, Entry>,
    timers: BTreeSet<(u64, Key)>,
    /// Dynamic entries with a link address by when they were heard of.
    ages: BTreeSet<(u64, Key)>,
    /// Those without by when they were asked for.
    pending: BTreeSet<(u64, Key)>,
    pub figures: NeighborFigures,
    random: u64,
}

impl Table {
    pub fn new(seed: u64) -> Self {
        Self {
            config: NeighborConfig::default(),
            entries: BTreeMap::new(),
            timers: BTreeSet::new(),
            ages: BTreeSet::new(),
            pending: BTreeSet::new(),
            figures: NeighborFigures::default(),
            random: seed | 1,
        }
    }

    pub fn get(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// Entries by interface and address.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.entries.iter()
    }

    pub fn figures(&self) -> NeighborFigures {
        NeighborFigures { entries: self.entries.len(), pending: self.pending.len(), ..self.figures }
    }

    /// 0 to 65,535 (xorshift: timers only have to differ).
    fn random(&mut self) -> u16 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 32) as u16
    }

    /// Takes an entry out of the orders by time, for a change; `link` puts it back.
    fn unlink(&mut self, key: &Key) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        if let Some(due) = entry.due {
            self.timers.remove(&(due, *key));
        }
        self.ages.remove(&(entry.heard, *key));
        self.pending.remove(&(entry.heard, *key));
        Some(entry)
    }

    fn link(&mut self, key: Key, entry: Entry) {
        if let Some(due) = entry.due {
            self.timers.insert((due, key));
        }
        match entry.reach.state {
            State::Permanent => {}
            State::Incomplete => drop(self.pending.insert((entry.heard, key))),
            _ => drop(self.ages.insert((entry.heard, key))),
        }
        self.entries.insert(key, entry);
    }

    fn age(&self) -> Option<u64> {
        (self.config.age > 0).then(|| u64::from(self.config.age) * SECOND)
    }

    /// Starts the timer that goes with an entry's state.
    fn arm(&mut self, entry: &mut Entry, now: u64) {
        let random = self.random();
        let wait = entry.reach.wait(random);
        let aged = self.age().map(|age| (entry.heard + age).saturating_sub(now).max(SECOND / 10));
        let quiet = matches!(entry.reach.state, State::Reachable | State::Stale);
        entry.due = wait.map(|w| now + if quiet { aged.map_or(w, |a| w.min(a)) } else { w });
    }

    /// Makes room for another dynamic entry.
    fn make_room(&mut self, pending: bool) -> Result<Option<Key>, ()> {
        if pending && self.pending.len() >= PENDING_MAX {
            self.figures.recycled += 1;
            return Ok(self.pending.first().map(|(_, k)| *k));
        }
        let dynamic = self.ages.len() + self.pending.len();
        if self.config.limit == 0 || dynamic < self.config.limit as usize {
            return Ok(None);
        }
        // One that may not exist gives way to one that does, whatever the configuration.
        let unanswered = self.pending.first().filter(|_| self.config.recycle || !pending);
        let oldest = unanswered.or_else(|| self.ages.first().filter(|_| self.config.recycle)).map(|(_, k)| *k);
        if oldest.is_some() {
            self.figures.recycled += 1;
            return Ok(oldest);
        }
        self.figures.refused += 1;
        Err(())
    }

    fn insert(&mut self, key: Key, reach: Reach, now: u64) -> Made {
        let Ok(gone) = self.make_room(reach.state == State::Incomplete) else { return Made::Full };
        if let Some(gone) = gone {
            self.unlink(&gone);
        }
        self.unlink(&key);
        let mut entry = Entry { reach, no_fib: false, configured: false, heard: now, due: None, sent: 0 };
        self.arm(&mut entry, now);
        self.link(key, entry);
        Made::Yes(gone)
    }

    /// Notes that a neighbour is asked for; nothing where there is an entry.
    pub fn want(&mut self, key: Key, now: u64) -> Made {
        if self.entries.contains_key(&key) {
            return Made::Yes(None);
        }
        self.insert(key, Reach::INCOMPLETE, now)
    }

    /// Makes a dynamic entry of what was heard; there is none.
    pub fn learn(&mut self, key: Key, mac: MacAddr, now: u64) -> Made {
        self.insert(key, Reach::stale(mac), now)
    }

    /// Takes evidence in; `None` where there is no entry.
    pub fn hear(&mut self, key: &Key, evidence: Evidence, now: u64) -> Option<Effect> {
        let mut entry = self.unlink(key)?;
        let effect = entry.reach.hear(evidence);
        if effect.heard {
            entry.heard = now;
            entry.configured = false;
        }
        if effect.timer {
            self.arm(&mut entry, now);
        }
        self.link(*key, entry);
        Some(effect)
    }

    /// Sets an entry as the user says; the one that was there.
    pub fn set(&mut self, key: Key, mac: MacAddr, permanent: bool, no_fib: bool, now: u64) -> Result<Option<Key>, ()> {
        let reach = Reach { state: if permanent { State::Permanent } else { State::Stale }, mac: Some(mac), attempts: 0 };
        let old = self.unlink(&key);
        let room = if permanent { Ok(None) } else { self.make_room(false) };
        let gone = match room {
            Ok(gone) => gone,
            Err(()) => {
                if let Some(old) = old {
                    self.link(key, old);
                }
                return Err(());
            }
        };
        if let Some(gone) = gone {
            self.unlink(&gone);
        }
        let mut entry = Entry { reach, no_fib, configured: true, heard: now, due: None, sent: 0 };
        self.arm(&mut entry, now);
        self.link(key, entry);
        Ok(gone)
    }

    /// The link of a dynamic neighbour went down, or came up again: what was known of it is used until a request to it
    /// alone, sent when the link is up, tells whether it still holds.
    pub fn doubt(&mut self, key: &Key, up: bool, now: u64) {
        let Some(mut entry) = self.unlink(key) else { return };
        let probed = up && self.config.probe && !entry.configured;
        entry.reach.doubt(probed);
        self.arm(&mut entry, now);
        if probed {
            entry.due = Some(now);
        }
        self.link(*key, entry);
    }

    /// Removes an entry.
    pub fn remove(&mut self, key: &Key) -> Option<Entry> {
        self.unlink(key)
    }

    /// The next timer.
    pub fn next_due(&self) -> Option<u64> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// The neighbour whose timer has run out, if any.
    pub fn expired(&self, now: u64) -> Option<Key> {
        self.timers.first().filter(|(due, _)| *due <= now).map(|(_, k)| *k)
    }

    /// Whether somebody must look how many packets were sent to it before [`Table::tick`].
    pub fn wants_use(&self, key: &Key) -> bool {
        self.entries.get(key).is_some_and(|e| e.reach.state == State::Stale)
    }

    /// Handles a timer that has run out. `sent`: packets sent to the neighbour so far. Gives what to send and the link
    /// address; a lost entry stays for the caller to remove.
    pub fn tick(&mut self, key: &Key, sent: u64, now: u64) -> (Due, Option<MacAddr>) {
        let Some(mut entry) = self.unlink(key) else { return (Due::Quiet, None) };
        let was = entry.reach.state;
        let used = was == State::Stale && sent != entry.sent && !entry.configured && self.config.probe;
        entry.sent = sent;
        let aged = self.age().is_some_and(|age| now.saturating_sub(entry.heard) >= age);
        let due = entry.reach.tick(used, aged);
        self.arm(&mut entry, now);
        let mac = entry.reach.mac;
        self.link(*key, entry);
        (due, mac)
    }

    /// Changes the limits; timers are set anew by the new age.
    pub fn configure(&mut self, config: NeighborConfig, now: u64) {
        self.config = config;
        let keys: Vec<Key> = self.ages.iter().map(|(_, k)| *k).collect();
        for key in keys {
            if let Some(mut entry) = self.unlink(&key) {
                if matches!(entry.reach.state, State::Reachable | State::Stale) {
                    self.arm(&mut entry, now);
                }
                self.link(key, entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    use quiver_graph::IfIndex;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    fn key(n: u32) -> Key {
        (IfIndex(n % 3), Ipv4Addr::from_bits(n).into())
    }

    fn run(table: &mut Table, until: u64) -> Vec<(u64, Due)> {
        let mut log = Vec::new();
        while let Some(key) = table.expired(until) {
            let at = table.next_due().unwrap();
            let (due, _) = table.tick(&key, 0, at);
            if due != Due::Quiet {
                log.push((at / SECOND, due));
            }
            if due == Due::Lost {
                table.remove(&key);
            }
        }
        log
    }

    #[test]
    fn a_neighbour_that_never_answers_is_asked_three_times_and_forgotten() {
        let mut table = Table::new(1);
        assert_eq!(table.want(key(1), 0), Made::Yes(None));
        assert_eq!(run(&mut table, 60 * SECOND), [(1, Due::AskAll), (2, Due::AskAll), (3, Due::Lost)]);
        assert_eq!((table.iter().count(), table.next_due()), (0, None));
    }

    #[test]
    fn an_entry_older_than_the_age_is_probed_and_then_removed() {
        let mut table = Table::new(1);
        table.configure(NeighborConfig { age: 10, ..table.config }, 0);
        table.learn(key(1), MAC, 0);
        assert_eq!(run(&mut table, 60 * SECOND), [(10, Due::AskIt), (11, Due::AskIt), (12, Due::AskIt), (13, Due::Lost)]);
        let mut table = Table::new(1);
        table.learn(key(1), MAC, 0);
        assert_eq!(run(&mut table, 600 * SECOND), [], "without an age, what is not used stays");
        table.configure(NeighborConfig { age: 10, ..table.config }, 600 * SECOND);
        assert_eq!(run(&mut table, 700 * SECOND).last(), Some(&(603, Due::Lost)));
    }

    #[test]
    fn one_in_use_is_probed_only_where_that_is_configured() {
        for probe in [true, false] {
            let mut table = Table::new(1);
            table.configure(NeighborConfig { probe, ..table.config }, 0);
            table.learn(key(1), MAC, 0);
            let mut sent = 0;
            let mut lost = false;
            while let Some(key) = table.expired(60 * SECOND).filter(|_| !lost) {
                sent += 1;
                let at = table.next_due().unwrap();
                lost = table.tick(&key, sent, at).0 == Due::Lost;
            }
            assert_eq!(lost, probe);
        }
    }

    #[test]
    fn the_limit_refuses_or_recycles_the_oldest() {
        let mut table = Table::new(1);
        table.configure(NeighborConfig { limit: 3, ..table.config }, 0);
        for n in 0..3 {
            assert_eq!(table.learn(key(n), MAC, u64::from(n)), Made::Yes(None));
        }
        assert_eq!(table.learn(key(3), MAC, 3), Made::Full);
        assert!(table.set(key(9), MAC, true, false, 3).is_ok(), "static entries do not count");
        table.configure(NeighborConfig { limit: 3, recycle: true, ..table.config }, 3);
        table.hear(&key(0), Evidence::Seen(MAC), 4);
        assert_eq!(table.learn(key(3), MAC, 5), Made::Yes(Some(key(1))));
        assert_eq!(table.iter().count(), 4);
        assert_eq!((table.figures().refused, table.figures().recycled), (1, 1));
    }

    #[test]
    fn a_scan_leaves_no_more_than_the_newest_requests() {
        let mut table = Table::new(1);
        for n in 0..65_536_u32 {
            table.want(key(n), u64::from(n));
        }
        assert_eq!(table.figures().pending, PENDING_MAX);
        assert!(table.get(&key(65_535)).is_some() && table.get(&key(0)).is_none());
        run(&mut table, 10 * SECOND);
        assert_eq!((table.iter().count(), table.timers.len(), table.ages.len()), (0, 0, 0));
    }

    #[test]
    fn orders_by_time_hold_exactly_the_entries_under_random_use() {
        let mut table = Table::new(7);
        table.configure(NeighborConfig { limit: 20, age: 3, recycle: true, ..table.config }, 0);
        let mut seed = 12_345_u64;
        for step in 0..20_000_u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (k, now) = (key((seed >> 40) as u32 % 40), step * SECOND / 50);
            match (seed >> 33) % 7 {
                0 => drop(table.want(k, now)),
                1 if table.get(&k).is_none() => drop(table.learn(k, MAC, now)),
                2 => drop(table.hear(&k, Evidence::Seen(MacAddr([2, 0, 0, 0, 0, (seed >> 50) as u8])), now)),
                3 => drop(table.hear(&k, Evidence::Advert { mac: Some(MAC), solicited: true, overrides: true }, now)),
                4 => drop(table.set(k, MAC, seed & 1 == 0, false, now)),
                5 => drop(table.remove(&k)),
                _ => drop(run(&mut table, now)),
            }
            let statics = table.iter().filter(|(_, e)| e.is_static()).count();
            assert_eq!(table.ages.len() + table.pending.len() + statics, table.entries.len());
            assert_eq!(table.timers.len() + statics, table.entries.len());
            assert!(table.ages.len() + table.pending.len() <= 20);
        }
    }
}
