//! What an interface tells its link of the groups of one family, and when: the state machines of RFC 3376 (section 5) and
//! RFC 3810 (section 6), without packets and interfaces.
//!
//! A group is listened to from all sources or not at all, so that what is reported is "all but none" (EXCLUDE {}). Reports of
//! other hosts suppress none of ours: the last versions know no suppression, and a switch that snoops wants to hear each host.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use quiver_wire::group::{Query, Record, RecordKind, Version};
use quiver_wire::ipv6::address::multicast_scope;

use crate::neighbor::state::SECOND;

/// How often a change is told, where no querier says otherwise (RFC 3376, 8.1; RFC 3810, 9.1).
const ROBUSTNESS: u8 = 2;
/// Most time between two times that a change is told, ns (RFC 3376, 8.11; RFC 3810, 9.11).
const REPEAT: u64 = SECOND;
/// The same for older versions (RFC 2236, 8.10; RFC 2710, 7.10).
const REPEAT_OLD: u64 = 10 * SECOND;
/// Time between general queries and for their answers, where none of the last version was heard, ns.
const INTERVAL: u64 = 125 * SECOND;
/// See [`INTERVAL`].
const RESPONSE: u64 = 10 * SECOND;
/// Least time over which answers are spread, whatever a query says, ns: queries that want answers at once, one after the other,
/// get few.
const LEAST: u64 = SECOND / 10;

/// What is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Say {
    /// Records of a report of the last version, as many as there are.
    Records(Vec<Record>),
    /// A report, or a leave, of an older version.
    Old { version: Version, group: IpAddr, leave: bool },
}

/// Groups of a family that an interface listens to. Times are ns of timer time.
#[derive(Clone, Debug)]
pub(super) struct Membership {
    /// Who listens to each group.
    users: BTreeMap<IpAddr, BTreeSet<&'static str>>,
    /// Groups whose joining or leaving is still to be told, and how often.
    changes: BTreeMap<IpAddr, u8>,
    change_due: Option<u64>,
    /// When a general query is answered.
    general: Option<u64>,
    /// When a query for a group is answered; for some sources only.
    specific: BTreeMap<IpAddr, (u64, Vec<IpAddr>)>,
    /// Until when a querier of the first and second version is taken to be there.
    older: [u64; 2],
    version: Version,
    robustness: u8,
    /// Time between general queries as the last querier says.
    interval: u64,
    /// The interface can send.
    running: bool,
    /// Queries heard.
    pub heard: u64,
    /// Reports sent.
    pub sent: u64,
}

impl Default for Membership {
    fn default() -> Self {
        Self {
            users: BTreeMap::new(),
            changes: BTreeMap::new(),
            change_due: None,
            general: None,
            specific: BTreeMap::new(),
            older: [0; 2],
            version: Version::Third,
            robustness: ROBUSTNESS,
            interval: INTERVAL,
            running: false,
            heard: 0,
            sent: 0,
        }
    }
}

/// Whether listening to a group is told to anybody: not for all hosts of the link, nor for what stays on the interface (RFC
/// 3376, 5; RFC 3810, 6).
fn is_told(group: &IpAddr) -> bool {
    match group {
        IpAddr::V4(a) => a.octets() != [224, 0, 0, 1],
        IpAddr::V6(a) => *a != quiver_wire::ipv6::address::ALL_NODES && multicast_scope(a.to_bits()) > 1,
    }
}

impl Membership {
    /// Groups, with who listens to each.
    pub fn users(&self) -> impl Iterator<Item = (&IpAddr, &BTreeSet<&'static str>)> {
        self.users.iter()
    }

    /// Whether it listens to a group.
    pub fn has(&self, group: &IpAddr) -> bool {
        self.users.contains_key(group)
    }

    /// Version that it speaks.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Nothing is listened to and nothing is left to say.
    pub fn is_idle(&self) -> bool {
        self.users.is_empty() && self.next_due().is_none()
    }

    /// Sets the groups that a user listens to. A group is joined with its first user and left with its last.
    pub fn want(&mut self, user: &'static str, groups: &BTreeSet<IpAddr>, now: u64) {
        self.settle_version(now);
        let before: Vec<IpAddr> = self.users.iter().filter(|(_, users)| users.contains(user)).map(|(g, _)| *g).collect();
        for group in groups.iter().filter(|g| !before.contains(g)) {
            let users = self.users.entry(*group).or_default();
            users.insert(user);
            if users.len() == 1 {
                self.changed(*group, now);
            }
        }
        for group in before.iter().filter(|g| !groups.contains(g)) {
            let Some(users) = self.users.get_mut(group) else { continue };
            users.remove(user);
            if users.is_empty() {
                self.users.remove(group);
                self.specific.remove(group);
                self.changed(*group, now);
            }
        }
    }

    fn changed(&mut self, group: IpAddr, now: u64) {
        if self.running && is_told(&group) {
            self.changes.insert(group, self.robustness);
            // At once; what was to be told again anyway goes along (RFC 3376, 5.1).
            self.change_due = Some(now);
        }
    }

    /// Tells of all groups anew: the link has come up, or there is a better address to tell from (RFC 3590, 4).
    pub fn tell_all(&mut self, now: u64) {
        self.settle_version(now);
        let groups: Vec<IpAddr> = self.users.keys().copied().collect();
        groups.into_iter().for_each(|group| self.changed(group, now));
    }

    /// The interface can send now, or no longer.
    pub fn set_running(&mut self, running: bool, now: u64) {
        if running == self.running {
            return;
        }
        self.running = running;
        self.cancel();
        if running {
            self.tell_all(now);
        }
    }

    /// Nothing is left to say (RFC 3376, 7.2.1: also where the version becomes another one).
    fn cancel(&mut self) {
        self.changes.clear();
        self.specific.clear();
        (self.change_due, self.general) = (None, None);
    }

    fn settle_version(&mut self, now: u64) {
        let version = match self.older.map(|until| now < until) {
            [true, _] => Version::First,
            [_, true] => Version::Second,
            _ => Version::Third,
        };
        if version != self.version {
            self.version = version;
            self.cancel();
        }
    }

    /// A router asks.
    pub fn hear(&mut self, query: &Query, now: u64, random: &mut dyn FnMut(u64) -> u64) {
        self.heard += 1;
        let response = u64::from(query.max_response_ms) * (SECOND / 1000);
        match query.version {
            // RFC 3376, 8.12; RFC 3810, 9.12.
            Version::First | Version::Second => {
                let until = now + u64::from(self.robustness) * self.interval + response.clamp(LEAST, RESPONSE);
                self.older[query.version as usize] = until;
            }
            Version::Third => {
                self.robustness = if query.robustness == 0 { ROBUSTNESS } else { query.robustness };
                self.interval = if query.interval_s == 0 { INTERVAL } else { u64::from(query.interval_s) * SECOND };
            }
        }
        self.settle_version(now);
        if !self.running {
            return;
        }
        let due = now + 1 + random(response.max(LEAST));
        if self.general.is_some_and(|general| general <= due) {
            return;
        }
        match query.group {
            None => self.general = Some(due),
            Some(group) if self.has(&group) && is_told(&group) => self.ask_of(group, due, query.sources.as_slice()),
            Some(_) => {}
        }
    }

    /// RFC 3376, 5.2, rules 3 to 5; sources are bounded, and none of them stand for all.
    fn ask_of(&mut self, group: IpAddr, due: u64, sources: &[IpAddr]) {
        let Some((time, asked)) = self.specific.get_mut(&group) else {
            self.specific.insert(group, (due, sources.to_vec()));
            return;
        };
        *time = due.min(*time);
        let is_wide = |asked: &[IpAddr]| asked.is_empty() || asked.len() + sources.len() > 4 * quiver_wire::group::SOURCES_MAX;
        if is_wide(asked) || sources.is_empty() {
            asked.clear();
        } else {
            asked.extend(sources);
            asked.sort_unstable();
            asked.dedup();
        }
    }

    /// When there is something to say next.
    pub fn next_due(&self) -> Option<u64> {
        let specific = self.specific.values().map(|(due, _)| *due).min();
        [self.change_due, self.general, specific].into_iter().flatten().min()
    }

    /// What is to be said now.
    pub fn take_due(&mut self, now: u64, random: &mut dyn FnMut(u64) -> u64) -> Vec<Say> {
        self.settle_version(now);
        let mut records = Vec::new();
        if self.change_due.is_some_and(|due| due <= now) {
            self.take_changes(now, &mut records, random);
        }
        let listens = |group: &IpAddr, sources: Vec<IpAddr>| Record {
            kind: if sources.is_empty() { RecordKind::IsExclude } else { RecordKind::IsInclude },
            group: *group,
            sources,
        };
        if self.general.is_some_and(|due| due <= now) {
            self.general = None;
            records.extend(self.users.keys().filter(|g| is_told(g)).map(|group| listens(group, Vec::new())));
        }
        let due: Vec<IpAddr> = self.specific.iter().filter(|(_, (due, _))| *due <= now).map(|(group, _)| *group).collect();
        for group in due {
            let Some((_, sources)) = self.specific.remove(&group) else { continue };
            records.push(listens(&group, sources));
        }
        let version = self.version;
        match version {
            _ if records.is_empty() => Vec::new(),
            Version::Third => vec![Say::Records(records)],
            // IGMPv1 knows no leaving.
            _ => records
                .into_iter()
                .map(|r| (r.group, r.kind == RecordKind::ToInclude))
                .filter(|(_, leave)| !(*leave && version == Version::First))
                .map(|(group, leave)| Say::Old { version, group, leave })
                .collect(),
        }
    }

    fn take_changes(&mut self, now: u64, records: &mut Vec<Record>, random: &mut dyn FnMut(u64) -> u64) {
        let is_old = self.version != Version::Third;
        for (group, left) in &mut self.changes {
            let kind = if self.users.contains_key(group) { RecordKind::ToExclude } else { RecordKind::ToInclude };
            records.push(Record { kind, group: *group, sources: Vec::new() });
            // Older versions tell once that a group is left.
            *left = if is_old && kind == RecordKind::ToInclude { 0 } else { left.saturating_sub(1) };
        }
        self.changes.retain(|_, left| *left > 0);
        let wait = 1 + random(if is_old { REPEAT_OLD } else { REPEAT });
        self.change_due = (!self.changes.is_empty()).then_some(now + wait);
    }
}

#[cfg(test)]
#[path = "membership_tests.rs"]
mod tests;
