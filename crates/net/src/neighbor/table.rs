//! The neighbour table of one family on the main thread: entries, their timers, and its limits. Pure: it knows neither the
//! router nor the FIB, and time is a parameter.
//!
//! *Who has to go.* Entries are limited in all and for each interface. Where a limit is reached, and entries may be recycled, the
//! interface itself (or, for the limit of all, the one that has most) gives up, in this order: what spoke but was never used nor
//! confirmed; what does not answer; and of the others the one that was used or heard of longest ago. Static entries, next hops of
//! routes, and entries that carried a packet lately never go: then the new one is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};

use quiver_graph::IfIndex;
use quiver_wire::MacAddr;

use super::hold::{Key, PACKETS_EACH};
use super::shares::{Shares, Standing};
use super::state::{Due, Effect, Evidence, Reach, SECOND, State};
use crate::random::Random;

/// Neighbours that are asked for at a time, in all and of an interface; a scan of a big prefix pushes out those asked for longest
/// (RFC 6583, 6.2).
pub(crate) const PENDING_MAX: usize = 4096;
const PENDING_INTERFACE: usize = PENDING_MAX / 4;
/// An entry that carried a packet so long ago or less is not recycled, ns.
const RECENT: u64 = 60 * SECOND;
/// Entries that are looked at when one has to go.
const LOOK: usize = 16;

/// What a neighbour is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Packets sent to it so far.
    pub sent: u64,
    /// It is the next hop of a route.
    pub is_next_hop: bool,
}

/// Tells what a neighbour is used for.
pub(crate) type Ask<'a> = &'a dyn Fn(&Key) -> Usage;

/// Limits of a family's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborConfig {
    /// Most dynamic entries; 0: no limit.
    pub limit: u32,
    /// Most dynamic entries of one interface; 0: no limit of its own.
    pub interface_limit: u32,
    /// Seconds after which an entry that nothing was heard of is probed, and removed if it does not answer; 0: only those
    /// in use are probed.
    pub age: u32,
    /// Seconds after which a learned entry that carried no packet, and that nothing was heard of, is forgotten; 0: never. Next
    /// hops of routes stay, and so does what the user configured and nothing was heard of.
    pub unused: u32,
    /// Whether a new entry takes the place of an unused one where a limit is reached.
    pub recycle: bool,
    /// Whether those in use are asked now and then whether they are still there (RFC 4861, section 7.3). Without it a
    /// dynamic entry stays until its age.
    pub probe: bool,
    /// Whether addresses of ours are announced when they come up, without being asked for.
    pub announce: bool,
    /// Packets that a thread holds for a neighbour that it has asked for, 0 to 64: RFC 1122, 2.3.2.2, wants at least one; RFC 4861, 7.2.2,
    /// a small queue.
    pub hold: u32,
    /// Milliseconds after which a packet for a neighbour that does not answer asks again, beside the three requests at intervals of a
    /// second (RFC 1122, 2.3.2.1); 0: packets do not ask again.
    pub request_interval: u32,
}

impl Default for NeighborConfig {
    fn default() -> Self {
        Self {
            limit: 50_000,
            interface_limit: 8_192,
            age: 0,
            unused: 600,
            recycle: true,
            probe: true,
            announce: true,
            hold: PACKETS_EACH,
            request_interval: 0,
        }
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
    /// Entries that were forgotten because nobody used them.
    pub unused: u64,
    /// The interface that has most dynamic entries, and how many.
    pub fullest: Option<(IfIndex, usize)>,
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
    /// When it was last heard of or seen in use.
    touched: u64,
    /// When it was last seen in use.
    used: Option<u64>,
    /// It answered us, or packets were sent to it.
    proven: bool,
    /// When its timer runs out.
    due: Option<u64>,
    /// Packets sent to it when its use was last looked at.
    sent: u64,
}

impl Entry {
    fn new(reach: Reach, now: u64) -> Self {
        let (no_fib, configured, proven) = (false, false, false);
        Self { reach, no_fib, configured, heard: now, touched: now, used: None, proven, due: None, sent: 0 }
    }

    fn standing(&self) -> Option<Standing> {
        match self.reach.state {
            State::Permanent => None,
            State::Incomplete => Some(Standing::Pending),
            _ if self.proven || self.configured => Some(Standing::Proven),
            _ => Some(Standing::Unproven),
        }
    }

    /// Takes in what it is used for.
    fn note(&mut self, usage: Usage, now: u64) {
        if usage.sent != self.sent && self.reach.mac.is_some() {
            (self.used, self.touched, self.proven) = (Some(now), now, true);
        }
        self.sent = usage.sent;
    }

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
    shares: Shares,
    pub figures: NeighborFigures,
    random: Random,
}

impl Table {
    pub fn new(seed: u64) -> Self {
        Self {
            config: NeighborConfig::default(),
            entries: BTreeMap::new(),
            timers: BTreeSet::new(),
            shares: Shares::default(),
            figures: NeighborFigures::default(),
            random: Random::new(seed),
        }
    }

    pub fn get(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// Entries by interface and address.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.entries.iter()
    }

    /// Entries of an interface, by address.
    pub fn on(&self, interface: IfIndex) -> impl Iterator<Item = (&Key, &Entry)> {
        let (first, last) = (Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::from_bits(u128::MAX).into());
        self.entries.range((interface, first)..=(interface, last))
    }

    pub fn figures(&self) -> NeighborFigures {
        let (pending, fullest) = (self.shares.pending(), self.shares.fullest());
        NeighborFigures { entries: self.entries.len(), pending, fullest, ..self.figures }
    }

    /// Takes an entry out of the orders by time, for a change; `link` puts it back.
    fn unlink(&mut self, key: &Key) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        if let Some(due) = entry.due {
            self.timers.remove(&(due, *key));
        }
        if entry.standing().is_some() {
            self.shares.remove(entry.touched, key);
        }
        Some(entry)
    }

    fn link(&mut self, key: Key, entry: Entry) {
        if let Some(due) = entry.due {
            self.timers.insert((due, key));
        }
        if let Some(standing) = entry.standing() {
            self.shares.insert(standing, entry.touched, key);
        }
        self.entries.insert(key, entry);
    }

    fn age(&self) -> Option<u64> {
        (self.config.age > 0).then(|| u64::from(self.config.age) * SECOND)
    }

    /// Starts the timer that goes with an entry's state.
    fn arm(&mut self, entry: &mut Entry, now: u64) {
        let random = self.random.word();
        let wait = entry.reach.wait(random);
        let aged = self.age().map(|age| (entry.heard + age).saturating_sub(now).max(SECOND / 10));
        let quiet = matches!(entry.reach.state, State::Reachable | State::Stale);
        entry.due = wait.map(|w| now + if quiet { aged.map_or(w, |a| w.min(a)) } else { w });
    }

    /// Makes room for another dynamic entry: the one that has to go, which is still there. The limit where there is none.
    fn make_room(&mut self, interface: IfIndex, pending: bool, ask: Ask<'_>, now: u64) -> Result<Option<Key>, u32> {
        let (of_interface, pending_of_interface) = self.shares.of(interface);
        let crowded = if pending && pending_of_interface >= PENDING_INTERFACE {
            Some(interface)
        } else {
            self.shares.most_pending().filter(|_| pending && self.shares.pending() >= PENDING_MAX)
        };
        if let Some(crowded) = crowded {
            self.figures.recycled += 1;
            return Ok(self.shares.oldest(crowded, Standing::Pending, 1).first().copied());
        }
        let NeighborConfig { limit, interface_limit, .. } = self.config;
        let reached = |limit: u32, n: usize| limit > 0 && n >= limit as usize;
        let (from, limit) = if reached(interface_limit, of_interface) {
            (interface, interface_limit)
        } else if reached(limit, self.shares.len()) {
            (self.shares.fullest().map_or(interface, |(fullest, _)| fullest), limit)
        } else {
            return Ok(None);
        };
        let gone = self.one_to_go(from, pending, ask, now);
        match gone {
            Some(_) => self.figures.recycled += 1,
            None => self.figures.refused += 1,
        }
        gone.map(Some).ok_or(limit)
    }

    /// The entry of an interface that has to go for another one.
    fn one_to_go(&mut self, from: IfIndex, pending: bool, ask: Ask<'_>, now: u64) -> Option<Key> {
        let recycle = self.config.recycle;
        if recycle && let Some(key) = self.unused_one(from, Standing::Unproven, ask, now) {
            return Some(key);
        }
        // One that may not exist gives way to one that does, whatever the configuration.
        if (recycle || !pending)
            && let Some(key) = self.shares.oldest(from, Standing::Pending, 1).first()
        {
            return Some(*key);
        }
        if recycle { self.unused_one(from, Standing::Proven, ask, now) } else { None }
    }

    /// The oldest entry of its kind that nobody uses. Those that are found in use go to the end of the line.
    fn unused_one(&mut self, from: IfIndex, standing: Standing, ask: Ask<'_>, now: u64) -> Option<Key> {
        for key in self.shares.oldest(from, standing, LOOK) {
            let usage = ask(&key);
            let Some(mut entry) = self.unlink(&key) else { continue };
            entry.note(usage, now);
            let in_use = usage.is_next_hop || entry.used.is_some_and(|used| now.saturating_sub(used) < RECENT);
            if in_use {
                (entry.touched, entry.proven) = (now, true);
            }
            self.link(key, entry);
            if !in_use {
                return Some(key);
            }
        }
        None
    }

    fn insert(&mut self, key: Key, reach: Reach, now: u64, ask: Ask<'_>) -> Made {
        let Ok(gone) = self.make_room(key.0, reach.state == State::Incomplete, ask, now) else { return Made::Full };
        if let Some(gone) = gone {
            self.unlink(&gone);
        }
        self.unlink(&key);
        let mut entry = Entry::new(reach, now);
        entry.sent = ask(&key).sent;
        self.arm(&mut entry, now);
        self.link(key, entry);
        Made::Yes(gone)
    }

    /// Notes that a neighbour is asked for; nothing where there is an entry.
    pub fn want(&mut self, key: Key, now: u64, ask: Ask<'_>) -> Made {
        if self.entries.contains_key(&key) {
            return Made::Yes(None);
        }
        self.insert(key, Reach::INCOMPLETE, now, ask)
    }

    /// Makes a dynamic entry of what was heard; there is none.
    pub fn learn(&mut self, key: Key, mac: MacAddr, now: u64, ask: Ask<'_>) -> Made {
        self.insert(key, Reach::stale(mac), now, ask)
    }

    /// Sets when a dynamic entry was last heard of: by the process before this one.
    pub fn set_heard(&mut self, key: &Key, heard: u64) {
        if let Some(entry) = self.entries.get_mut(key).filter(|entry| !entry.is_static()) {
            entry.heard = heard;
        }
    }

    /// Takes evidence in; `None` where there is no entry.
    pub fn hear(&mut self, key: &Key, evidence: Evidence, now: u64) -> Option<Effect> {
        let mut entry = self.unlink(key)?;
        let effect = entry.reach.hear(evidence);
        if effect.heard {
            (entry.heard, entry.touched, entry.configured) = (now, now, false);
        }
        if entry.reach.state == State::Reachable {
            entry.proven = true;
        }
        if effect.timer {
            self.arm(&mut entry, now);
        }
        self.link(*key, entry);
        Some(effect)
    }

    /// Sets an entry as the user says; the one that had to go for it, or the limit that is reached.
    pub fn set(
        &mut self,
        key: Key,
        mac: MacAddr,
        permanent: bool,
        no_fib: bool,
        now: u64,
        ask: Ask<'_>,
    ) -> Result<Option<Key>, u32> {
        let reach = Reach { state: if permanent { State::Permanent } else { State::Stale }, mac: Some(mac), attempts: 0 };
        let old = self.unlink(&key);
        let room = if permanent { Ok(None) } else { self.make_room(key.0, false, ask, now) };
        let gone = match room {
            Ok(gone) => gone,
            Err(limit) => {
                if let Some(old) = old {
                    self.link(key, old);
                }
                return Err(limit);
            }
        };
        if let Some(gone) = gone {
            self.unlink(&gone);
        }
        let mut entry = Entry { no_fib, configured: true, sent: ask(&key).sent, ..Entry::new(reach, now) };
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

    /// Handles a timer that has run out. Gives what to send and the MAC address; an entry that is lost or not used stays for the
    /// caller to remove.
    pub fn tick(&mut self, key: &Key, usage: Usage, now: u64) -> (Due, Option<MacAddr>) {
        let Some(mut entry) = self.unlink(key) else { return (Due::Quiet, None) };
        let was_used = usage.sent != entry.sent;
        entry.note(usage, now);
        let used = entry.reach.state == State::Stale && was_used && !entry.configured && self.config.probe;
        let aged = self.age().is_some_and(|age| now.saturating_sub(entry.heard) >= age);
        let unused = self.config.unused > 0
            && entry.reach.state == State::Stale
            && !entry.configured
            && !usage.is_next_hop
            && now.saturating_sub(entry.touched) >= u64::from(self.config.unused) * SECOND;
        let due = if unused { Due::Unused } else { entry.reach.tick(used, aged) };
        self.arm(&mut entry, now);
        let mac = entry.reach.mac;
        self.link(*key, entry);
        (due, mac)
    }

    /// Changes the limits; timers are set anew by the new age.
    pub fn configure(&mut self, config: NeighborConfig, now: u64) {
        self.config = config;
        for key in self.shares.known() {
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

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    fn key(n: u32) -> Key {
        (IfIndex(n % 3), Ipv4Addr::from_bits(n).into())
    }

    /// Neighbours that nobody uses.
    fn idle(_: &Key) -> Usage {
        Usage::default()
    }

    fn sent(sent: u64) -> Usage {
        Usage { sent, is_next_hop: false }
    }

    fn run(table: &mut Table, until: u64) -> Vec<(u64, Due)> {
        let mut log = Vec::new();
        while let Some(key) = table.expired(until) {
            let at = table.next_due().unwrap();
            let (due, _) = table.tick(&key, sent(0), at);
            if due != Due::Quiet {
                log.push((at / SECOND, due));
            }
            if matches!(due, Due::Lost | Due::Unused) {
                table.remove(&key);
            }
        }
        log
    }

    #[test]
    fn a_neighbour_that_never_answers_is_asked_three_times_and_forgotten() {
        let mut table = Table::new(1);
        assert_eq!(table.want(key(1), 0, &idle), Made::Yes(None));
        assert_eq!(run(&mut table, 60 * SECOND), [(1, Due::AskAll), (2, Due::AskAll), (3, Due::Lost)]);
        assert_eq!((table.iter().count(), table.next_due()), (0, None));
    }

    #[test]
    fn an_entry_older_than_the_age_is_probed_and_then_removed() {
        let mut table = Table::new(1);
        table.configure(NeighborConfig { age: 10, ..table.config }, 0);
        table.learn(key(1), MAC, 0, &idle);
        assert_eq!(run(&mut table, 60 * SECOND), [(10, Due::AskIt), (11, Due::AskIt), (12, Due::AskIt), (13, Due::Lost)]);
        let mut table = Table::new(1);
        table.learn(key(1), MAC, 0, &idle);
        table.configure(NeighborConfig { unused: 0, ..table.config }, 0);
        assert_eq!(run(&mut table, 600 * SECOND), [], "without an age, what is not used stays");
        table.configure(NeighborConfig { age: 10, ..table.config }, 600 * SECOND);
        assert_eq!(run(&mut table, 700 * SECOND).last(), Some(&(603, Due::Lost)));
    }

    #[test]
    fn one_in_use_is_probed_only_where_that_is_configured() {
        for probe in [true, false] {
            let mut table = Table::new(1);
            table.configure(NeighborConfig { probe, ..table.config }, 0);
            table.learn(key(1), MAC, 0, &idle);
            let mut packets = 0;
            let mut lost = false;
            while let Some(key) = table.expired(60 * SECOND).filter(|_| !lost) {
                packets += 1;
                let at = table.next_due().unwrap();
                lost = table.tick(&key, sent(packets), at).0 == Due::Lost;
            }
            assert_eq!(lost, probe);
        }
    }

    /// A neighbour of interface 1.
    fn one(n: u32) -> Key {
        (IfIndex(1), Ipv4Addr::from_bits(n).into())
    }

    fn answer() -> Evidence {
        Evidence::Advert { mac: Some(MAC), solicited: true, overrides: true }
    }

    #[test]
    fn the_limit_refuses_or_recycles_the_oldest() {
        let mut table = Table::new(1);
        table.configure(NeighborConfig { limit: 3, recycle: false, ..table.config }, 0);
        for n in 0..3 {
            assert_eq!(table.learn(one(n), MAC, n.into(), &idle), Made::Yes(None));
        }
        assert_eq!(table.learn(one(3), MAC, 3, &idle), Made::Full);
        assert!(table.set(one(9), MAC, true, false, 3, &idle).is_ok(), "static entries do not count");
        table.configure(NeighborConfig { limit: 3, recycle: true, ..table.config }, 3);
        table.hear(&one(0), Evidence::Seen(MAC), 4);
        assert_eq!(table.learn(one(3), MAC, 5, &idle), Made::Yes(Some(one(1))));
        assert_eq!(table.iter().count(), 4);
        assert_eq!((table.figures().refused, table.figures().recycled), (1, 1));
    }

    #[test]
    fn an_interface_that_is_full_takes_nothing_from_others() {
        let mut table = Table::new(1);
        table.configure(NeighborConfig { interface_limit: 100, limit: 150, ..table.config }, 0);
        let other = |n: u32| (IfIndex(2), Ipv4Addr::from_bits(n).into());
        for n in 0..30 {
            table.learn(other(n), MAC, 0, &idle);
        }
        for n in 0..1000 {
            table.learn(one(n), MAC, u64::from(n), &idle);
            assert!(table.shares.of(IfIndex(1)).0 <= 100);
        }
        assert_eq!((table.shares.of(IfIndex(1)).0, table.shares.of(IfIndex(2)).0), (100, 30));
        // Where the limit of all is reached, whoever has most gives.
        for n in 30..60 {
            assert!(matches!(table.learn(other(n), MAC, 2000, &idle), Made::Yes(_)));
        }
        assert_eq!((table.shares.of(IfIndex(1)).0, table.shares.of(IfIndex(2)).0), (90, 60));
        assert_eq!(table.figures().fullest, Some((IfIndex(1), 90)));
    }

    #[test]
    fn a_flood_pushes_out_itself_and_nobody_who_is_used_confirmed_asked_for_or_a_next_hop() {
        let mut table = Table::new(1);
        table.configure(NeighborConfig { interface_limit: 50, ..table.config }, 0);
        let (confirmed, used, hop, configured) = (one(1), one(2), one(3), one(4));
        table.want(confirmed, 0, &idle);
        table.hear(&confirmed, answer(), 1);
        table.learn(used, MAC, 1, &idle);
        table.learn(hop, MAC, 1, &idle);
        table.set(configured, MAC, false, false, 1, &idle).unwrap();
        let ask = |key: &Key| Usage { sent: u64::from(*key == used), is_next_hop: *key == hop };
        for n in 100..65_636_u32 {
            assert!(matches!(table.learn(one(n), MAC, u64::from(n), &ask), Made::Yes(_)));
            if n == 60_000 {
                table.want(one(5), u64::from(n), &ask);
            }
        }
        for key in [confirmed, used, hop, configured, one(5)] {
            assert!(table.get(&key).is_some(), "{key:?}");
        }
        assert_eq!((table.entries.len(), table.figures().refused), (50, 0));
    }

    #[test]
    fn where_all_are_in_use_a_new_one_is_refused() {
        let mut table = Table::new(1);
        table.configure(NeighborConfig { interface_limit: 20, ..table.config }, 0);
        let busy = |_: &Key| sent(1);
        for n in 0..20 {
            table.learn(one(n), MAC, 0, &idle);
        }
        // Bounded work: some are looked at each time.
        assert_eq!([table.learn(one(30), MAC, SECOND, &busy), table.learn(one(31), MAC, SECOND, &busy)], [Made::Full; 2]);
        assert_eq!(table.learn(one(32), MAC, 2 * SECOND, &busy), Made::Full);
        let later = 2 * SECOND + RECENT;
        assert!(matches!(table.learn(one(33), MAC, later, &busy), Made::Yes(Some(_))), "until they are not any more");
    }

    #[test]
    fn what_nobody_uses_is_forgotten_and_what_is_used_routed_or_configured_stays() {
        let mut table = Table::new(1);
        table.configure(NeighborConfig { probe: false, ..table.config }, 0);
        for n in 1..=3 {
            table.learn(one(n), MAC, 0, &idle);
        }
        table.set(one(4), MAC, false, false, 0, &idle).unwrap();
        let mut packets = 0;
        let mut gone = Vec::new();
        while let Some(key) = table.expired(3600 * SECOND) {
            let at = table.next_due().unwrap();
            packets += 1;
            let usage = Usage { sent: if key == one(2) { packets } else { 0 }, is_next_hop: key == one(3) };
            if table.tick(&key, usage, at).0 == Due::Unused {
                gone.push((key, at / SECOND));
                table.remove(&key);
            }
        }
        assert_eq!(gone, [(one(1), 600)]);
    }

    #[test]
    fn a_scan_leaves_no_more_than_the_newest_requests() {
        let mut table = Table::new(1);
        for n in 0..65_536_u32 {
            table.want(one(n), u64::from(n), &idle);
        }
        assert_eq!(table.figures().pending, PENDING_INTERFACE);
        assert!(table.get(&one(65_535)).is_some() && table.get(&one(0)).is_none());
        for n in 0..65_536_u32 {
            table.want((IfIndex(2 + n % 9), one(n).1), 100_000, &idle);
        }
        assert_eq!(table.figures().pending, PENDING_MAX);
        run(&mut table, 10 * SECOND);
        assert_eq!((table.iter().count(), table.timers.len(), table.shares.len()), (0, 0, 0));
    }

    #[test]
    fn orders_by_time_hold_exactly_the_entries_under_random_use() {
        let mut table = Table::new(7);
        table.configure(NeighborConfig { limit: 20, interface_limit: 9, age: 3, unused: 2, ..table.config }, 0);
        let mut seed = 12_345_u64;
        for step in 0..20_000_u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (k, now) = (key((seed >> 40) as u32 % 40), step * SECOND / 50);
            match (seed >> 33) % 7 {
                0 => drop(table.want(k, now, &idle)),
                1 if table.get(&k).is_none() => drop(table.learn(k, MAC, now, &|k| sent(u64::from(k.0.0)))),
                2 => drop(table.hear(&k, Evidence::Seen(MacAddr([2, 0, 0, 0, 0, (seed >> 50) as u8])), now)),
                3 => drop(table.hear(&k, Evidence::Advert { mac: Some(MAC), solicited: true, overrides: true }, now)),
                4 => drop(table.set(k, MAC, seed & 1 == 0, false, now, &idle)),
                5 => drop(table.remove(&k)),
                _ => drop(run(&mut table, now)),
            }
            let statics = table.iter().filter(|(_, e)| e.is_static()).count();
            assert_eq!(table.shares.len() + statics, table.entries.len());
            assert_eq!(table.timers.len() + statics, table.entries.len());
            assert!(table.shares.len() <= 20 && (0..3).all(|i| table.shares.of(IfIndex(i)).0 <= 9));
            assert_eq!(table.shares.pending(), table.iter().filter(|(_, e)| e.reach.state == State::Incomplete).count());
        }
    }
}
