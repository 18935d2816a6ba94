//! Between router and master agent: answers requests, and says when links go up and down.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use quiver_agentx::{Bind, Pdu, Range, Request, status};
use quiver_segment::Segment;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::client::{self, Client};
use crate::interface::{Columns, Interface};
use crate::master::{self, Master};
use crate::mib::{Mib, regions};

/// How old values may be: a walk over many interfaces asks some thousand times a second.
const FRESH: Duration = Duration::from_secs(1);
/// How long after a failure router and master agent are tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// Most variables of an answer to a `GetBulk`; an agent may send fewer than asked for (RFC 2741, 7.2.3.3).
const MOST: usize = 512;

/// Where router and master agent are, and how regions are registered.
pub struct Places {
    /// The router's binary API.
    pub api: PathBuf,
    /// The router's statistics.
    pub stats: PathBuf,
    /// The master agent.
    pub master: PathBuf,
    /// Context; empty: the default one.
    pub context: String,
    /// Priority.
    pub priority: u8,
}

impl Places {
    fn api_error(&self, error: client::Error) -> RouterError {
        RouterError::Api { place: self.api.display().to_string(), error }
    }

    fn stats_error(&self, error: quiver_segment::Error) -> RouterError {
        RouterError::Stats { place: self.stats.display().to_string(), error }
    }
}

/// Why the router cannot be read.
#[derive(Debug, thiserror::Error)]
enum RouterError {
    #[error("{place}: {error}")]
    Api { place: String, error: client::Error },
    #[error("{place}: {error}")]
    Stats { place: String, error: quiver_segment::Error },
}

struct Router {
    client: Client,
    segment: Segment,
}

/// The agent's state.
pub struct Agent {
    places: Places,
    router: Option<Router>,
    master: Option<Master>,
    mib: Mib,
    /// When the values were read.
    read: Option<Instant>,
    /// Rows as they were last, by index: for their times and for notifications.
    known: HashMap<u32, Interface>,
    /// Whether rows were ever read: those that are there at the start are not new.
    is_begun: bool,
    router_said: String,
    master_said: String,
}

/// Says what is new: not the same failure each second.
fn say(said: &mut String, now: String) {
    if *said != now {
        eprintln!("quiver-snmp: {now}");
        *said = now;
    }
}

impl Agent {
    /// Connected to nobody yet.
    pub fn new(places: Places) -> Self {
        Self {
            places,
            router: None,
            master: None,
            mib: Mib::default(),
            read: None,
            known: HashMap::new(),
            is_begun: false,
            router_said: String::new(),
            master_said: String::new(),
        }
    }

    /// Serves for ever.
    ///
    /// # Errors
    /// The kernel's, of waiting.
    pub fn run(mut self) -> std::io::Error {
        loop {
            let connected = self.connect();
            // An event during a dump may be about a row that had been read already.
            if self.router.as_mut().is_some_and(|router| router.client.has_events()) {
                self.refresh(false);
                continue;
            }
            let ready = match self.wait(connected) {
                Ok(ready) => ready,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return error.into(),
            };
            if ready[1] {
                self.events();
            }
            if ready[0] {
                self.requests();
            }
        }
    }

    /// Connects to what is missing; says whether nothing is.
    fn connect(&mut self) -> bool {
        if self.router.is_none() {
            match self.connect_router() {
                Ok(router) => {
                    say(&mut self.router_said, format!("reads the router at {}", self.places.api.display()));
                    self.router = Some(router);
                    self.refresh(true);
                }
                Err(error) => say(&mut self.router_said, error.to_string()),
            }
        }
        if self.master.is_none() {
            let places = &self.places;
            match Master::connect(&places.master, &places.context, places.priority, &regions()) {
                Ok(master) => {
                    say(&mut self.master_said, format!("serves IF-MIB by {}", places.master.display()));
                    self.master = Some(master);
                    // The times are of the master's clock, which has begun anew.
                    self.known.values_mut().for_each(|row| (row.last_change, row.discontinuity) = (0, 0));
                    self.mib = Mib::default();
                    self.show();
                    self.mib.forget_times();
                }
                Err(error) => say(&mut self.master_said, format!("{}: {error}", places.master.display())),
            }
        }
        self.router.is_some() && self.master.is_some()
    }

    fn connect_router(&self) -> Result<Router, RouterError> {
        let places = &self.places;
        let client = Client::connect(&places.api).map_err(|error| places.api_error(error))?;
        let segment = Segment::connect(&places.stats).map_err(|error| places.stats_error(error))?;
        Ok(Router { client, segment })
    }

    /// Waits until master or router say something, in this order.
    fn wait(&self, is_connected: bool) -> Result<[bool; 2], rustix::io::Errno> {
        let mut files = Vec::new();
        files.extend(self.master.as_ref().map(|master| PollFd::from_borrowed_fd(master.as_fd(), PollFlags::IN)));
        files.extend(self.router.as_ref().map(|router| PollFd::from_borrowed_fd(router.client.as_fd(), PollFlags::IN)));
        let again = Timespec { tv_sec: AGAIN.as_secs().cast_signed(), tv_nsec: 0 };
        poll(&mut files, (!is_connected).then_some(&again))?;
        let mut ready = files.iter().map(|file| !file.revents().is_empty());
        let master = self.master.is_some() && ready.next() == Some(true);
        Ok([master, self.router.is_some() && ready.next() == Some(true)])
    }

    fn now(&self) -> u32 {
        self.master.as_ref().map_or(0, Master::now)
    }

    fn lose_router(&mut self, error: &RouterError) {
        say(&mut self.router_said, error.to_string());
        self.router = None;
        // No rows rather than old ones. The rows are remembered, for what has changed when the router is back.
        let now = self.now();
        self.mib.replace(Vec::new(), now);
    }

    fn lose_master(&mut self, error: &master::Error) {
        say(&mut self.master_said, format!("{}: {error}", self.places.master.display()));
        self.master = None;
    }

    fn events(&mut self) {
        let Some(router) = &mut self.router else { return };
        match router.client.take_events() {
            Ok(true) => self.refresh(false),
            Ok(false) => {}
            Err(error) => {
                let error = self.places.api_error(error);
                self.lose_router(&error);
            }
        }
    }

    /// Reads all rows, and notifies of links that have changed.
    fn refresh(&mut self, is_anew: bool) {
        let now = self.now();
        let Some(router) = &mut self.router else { return };
        let read = match router.client.interfaces() {
            Ok(details) => match router.segment.read(Columns::of) {
                Ok(columns) => Ok((details, columns)),
                Err(error) => Err(self.places.stats_error(error)),
            },
            Err(error) => Err(self.places.api_error(error)),
        };
        let (details, columns) = match read {
            Ok(read) => read,
            Err(error) => return self.lose_router(&error),
        };
        let mut changed = Vec::new();
        let mut rows = HashMap::with_capacity(details.len());
        for details in &details {
            let mut row = Interface::of(details);
            row.counters = columns.counters(row.index);
            let before = self.known.get(&row.index);
            if self.is_begun {
                row.follow(before, now);
                if is_anew {
                    row.discontinuity = now;
                }
                let was_up = before.filter(|before| before.name == row.name).is_some_and(Interface::is_up);
                if was_up != row.is_up() && row.parent.is_none() {
                    changed.push(Mib::link_notification(&row));
                }
            }
            rows.insert(row.index, row);
        }
        self.known = rows;
        self.is_begun = true;
        self.read = Some(Instant::now());
        self.show();
        let Some(master) = &mut self.master else { return };
        if let Some(error) = changed.iter().find_map(|binds| master.notify(binds).err()) {
            self.lose_master(&error);
        }
    }

    /// Puts the rows into the tables.
    fn show(&mut self) {
        let now = self.now();
        if self.router.is_some() {
            let mut rows: Vec<_> = self.known.values().cloned().collect();
            rows.sort_unstable_by_key(|row| row.index);
            self.mib.replace(rows, now);
        }
    }

    fn requests(&mut self) {
        let Some(master) = &mut self.master else { return };
        let requests = match master.requests() {
            Ok(requests) => requests,
            Err(error) => return self.lose_master(&error),
        };
        if requests.is_empty() {
            return;
        }
        if self.read.is_none_or(|read| read.elapsed() >= FRESH) {
            self.refresh(false);
        }
        for pdu in requests {
            let Some((error, index, binds)) = answer(&self.mib, &pdu) else { continue };
            let Some(master) = &mut self.master else { return };
            if let Err(error) = master.answer(&pdu, error, index, &binds) {
                return self.lose_master(&error);
            }
        }
    }
}

/// The answer to a request: error, which variable it is about, values. Nothing where none is wanted.
fn answer(mib: &Mib, pdu: &Pdu) -> Option<(u16, u16, Vec<Bind>)> {
    let next = |ranges: &[Range]| ranges.iter().map(|range| mib.next(range)).collect();
    let binds = match &pdu.request {
        Request::Get(ranges) => {
            ranges.iter().map(|range| Bind { name: range.start.clone(), value: mib.get(&range.start) }).collect()
        }
        Request::GetNext(ranges) => next(ranges),
        Request::GetBulk { non_repeaters, max_repetitions, ranges } => {
            let (once, repeated) = ranges.split_at(ranges.len().min((*non_repeaters).into()));
            let mut binds: Vec<_> = next(once);
            let mut repeated = repeated.to_vec();
            for _ in 0..*max_repetitions {
                let row: Vec<_> = next(&repeated);
                let is_end = row.iter().all(|bind| bind.value == quiver_agentx::Value::EndOfMibView);
                for (range, bind) in repeated.iter_mut().zip(&row) {
                    (range.start, range.include) = (bind.name.clone(), false);
                }
                binds.extend(row);
                if is_end || binds.len() >= MOST {
                    break;
                }
            }
            binds
        }
        // Nothing can be written: the first variable says so.
        Request::TestSet => return Some((status::NOT_WRITABLE, 1, Vec::new())),
        Request::Commit => Vec::new(),
        Request::Unknown(_) => return Some((status::PARSE_ERROR, 0, Vec::new())),
        Request::Cleanup | Request::Close(_) | Request::Response { .. } => return None,
    };
    Some((status::NO_ERROR, 0, binds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiver_agentx::{Oid, Value};

    fn mib(interfaces: u32) -> Mib {
        let mut mib = Mib::default();
        mib.replace((1..=interfaces).map(|index| Interface { index, ..Interface::default() }).collect(), 0);
        mib
    }

    fn ask(mib: &Mib, request: Request) -> Option<(u16, u16, Vec<Bind>)> {
        answer(mib, &Pdu { session: 1, transaction: 2, packet: 3, request })
    }

    fn from(parts: &[u32]) -> Range {
        Range { start: Oid::with(&[1, 3, 6, 1, 2, 1, 2], parts), include: false, end: Oid::default() }
    }

    #[test]
    fn bulk_requests_are_rows_and_have_a_limit() {
        let bulk = |non_repeaters, max_repetitions, ranges| Request::GetBulk { non_repeaters, max_repetitions, ranges };
        let few = mib(3);
        let (_, _, binds) = ask(&few, bulk(1, 2, vec![from(&[]), from(&[2, 1, 1]), from(&[2, 1, 3])])).unwrap();
        let names: Vec<_> = binds.iter().map(|bind| bind.name.to_string().split_off("1.3.6.1.2.1.".len())).collect();
        assert_eq!(names, ["2.1.0", "2.2.1.1.1", "2.2.1.3.1", "2.2.1.1.2", "2.2.1.3.2"]);
        let (_, _, binds) = ask(&mib(4000), bulk(0, u16::MAX, vec![from(&[2]); 3])).unwrap();
        assert!((MOST..MOST + 3).contains(&binds.len()), "{}", binds.len());
        // An end for all of them ends the answer.
        let (_, _, binds) = ask(&few, bulk(0, 100, vec![from(&[9999])])).unwrap();
        assert!(binds.len() > 1);
        let behind = Range { start: Oid::new(&[1, 4]), include: true, end: Oid::default() };
        let (_, _, binds) = ask(&few, bulk(0, 100, vec![behind])).unwrap();
        assert_eq!(binds.len(), 1);
        assert_eq!(binds[0].value, Value::EndOfMibView);
        assert_eq!(ask(&few, bulk(9, 9, Vec::new())), Some((0, 0, Vec::new())));
    }

    #[test]
    fn nothing_can_be_written() {
        assert_eq!(ask(&mib(1), Request::TestSet).unwrap().0, status::NOT_WRITABLE);
        assert_eq!(ask(&mib(1), Request::Cleanup), None);
    }
}
