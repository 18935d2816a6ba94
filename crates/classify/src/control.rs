//! Tables, sessions and where they are used, on the main thread.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quiver_command::operation::{OpError, retval};
use quiver_graph::{GraphError, IfIndex, Published};
use quiver_net::ip::FamilyId;
use quiver_net::ops::graph_error;
use quiver_net::{IfEvent, PluginState, Router};

pub use crate::table::{Session, Shape, Table};
use crate::view::{Action, CHAIN_MAX, DENY, FilterOf, Filters, Key, NONE, Place, Rule, View};
use crate::{filter, nodes};

/// Who holds tables of routes, in errors.
const HOLDER: &str = "sessions of the classifier";
/// Numbers of tables are below this.
pub const TABLES_MAX: u32 = 4096;
/// Bytes of an Ethernet header without tags, and of a tag.
const ETHERNET: usize = 14;
const TAG: usize = 4;

/// The plugin's state on the main thread.
pub struct Classify {
    tables: BTreeMap<u32, Table>,
    acls: BTreeMap<(Place, u32), u32>,
    /// First tables of the filters of traces and captures.
    pub(crate) filters: Filters,
    /// Tables that were made for filters.
    pub(crate) made: BTreeSet<u32>,
    published: Published<View>,
}

impl PluginState for Classify {
    const OFF: &'static str = "the classifier's plugin is off";
}

impl Classify {
    /// Tables by number.
    pub fn tables(&self) -> impl Iterator<Item = (u32, &Table)> {
        self.tables.iter().map(|(number, table)| (*number, table))
    }

    /// A table.
    ///
    /// # Errors
    /// There is none.
    pub fn table(&self, number: u32) -> Result<&Table, OpError> {
        self.tables.get(&number).ok_or_else(|| no_table(number))
    }

    /// The first table of a place on an interface.
    pub fn acl(&self, place: Place, interface: u32) -> Option<u32> {
        self.acls.get(&(place, interface)).copied()
    }

    /// First tables by place and interface.
    pub fn acls(&self) -> impl Iterator<Item = (Place, u32, u32)> {
        self.acls.iter().map(|((place, interface), table)| (*place, *interface, *table))
    }

    /// A table and those behind it.
    pub fn chain(&self, first: u32) -> Vec<u32> {
        let next = |number: &u32| self.tables.get(number).and_then(|table| table.next);
        std::iter::successors(Some(first), next).take(CHAIN_MAX + 1).collect()
    }

    /// First tables of the filters of traces and captures.
    pub fn filters(&self) -> &Filters {
        &self.filters
    }

    /// Whether a table was made for a filter: it is no part of the configuration.
    pub fn is_made(&self, table: u32) -> bool {
        self.made.contains(&table)
    }

    pub(crate) fn publish_filters(&self) {
        let filters = self.filters.clone();
        self.publish(|view| view.filters = filters);
    }

    fn publish(&self, change: impl FnOnce(&mut View)) {
        let mut view = View::clone(&self.published.get());
        change(&mut view);
        self.published.publish(view);
    }

    fn publish_table(&self, number: u32) {
        let table = self.tables.get(&number).map(|table| Arc::new(table.view()));
        self.publish(|view| {
            let at = number as usize;
            if view.tables.len() <= at {
                view.tables.resize(at + 1, None);
            }
            view.tables[at] = table;
        });
    }
}

fn no_table(number: u32) -> OpError {
    OpError::new(retval::NO_SUCH_TABLE, format!("there is no classifier table {number}")).key("table").value(number)
}

/// Adds nodes and state.
///
/// # Errors
/// The graph's.
pub fn start(router: &mut Router) -> Result<(), GraphError> {
    let published = Published::new(View::default());
    nodes::declare(router, &published)?;
    filter::offer(router, &published);
    let (tables, acls, filters, made) = Default::default();
    router.add_part(Classify { tables, acls, filters, made, published });
    router.listen(|router, event| match *event {
        IfEvent::Deleted(index) => forget(router, index),
        IfEvent::Created(index) => note_link(router, index),
        _ => {}
    });
    Ok(())
}

/// Makes a table, with the lowest free number where none is given; gives its number.
///
/// # Errors
/// A mask that cannot be, a chain that would be too long, no room.
pub fn add_table(router: &mut Router, number: Option<u32>, shape: Shape, next: Option<u32>) -> Result<u32, OpError> {
    let domain = router.graph.domain().clone();
    let state = router.state_mut::<Classify>()?;
    let number = number.unwrap_or_else(|| (0..).find(|n| !state.tables.contains_key(n)).unwrap_or(NONE));
    if number >= TABLES_MAX {
        return Err(OpError::new(retval::TABLE_TOO_BIG, format!("there are at most {TABLES_MAX} classifier tables")).key("table"));
    }
    check_next(state, number, next)?;
    let table = Table::new(shape, next, &domain)?;
    state.tables.insert(number, table);
    state.publish_table(number);
    Ok(number)
}

/// Sets the table behind another one.
///
/// # Errors
/// No such table, a loop, a chain that would be too long.
pub fn set_next(router: &mut Router, number: u32, next: Option<u32>) -> Result<(), OpError> {
    let state = router.state_mut::<Classify>()?;
    state.table(number)?;
    check_next(state, number, next)?;
    if let Some(table) = state.tables.get_mut(&number) {
        table.next = next;
    }
    state.publish_table(number);
    Ok(())
}

/// Chains end, and are no longer than packets can be sent through.
fn check_next(state: &Classify, number: u32, next: Option<u32>) -> Result<(), OpError> {
    let Some(next) = next else { return Ok(()) };
    let wrong = |text: String| Err(OpError::new(retval::INVALID_VALUE, text).key("next-table").value(next));
    if next == number {
        return wrong("a table cannot follow itself".into());
    }
    state.table(next)?;
    let behind = state.chain(next);
    if behind.contains(&number) {
        return wrong(format!("table {number} follows table {next} already: chains have an end"));
    }
    let before = longest_before(state, number);
    if before + 1 + behind.len() > CHAIN_MAX {
        return wrong(format!("a chain has at most {CHAIN_MAX} tables"));
    }
    Ok(())
}

/// Tables of the longest chain that leads to this one.
fn longest_before(state: &Classify, number: u32) -> usize {
    let ahead = state.tables.keys().filter(|other| **other != number);
    let steps = |from: &u32| state.chain(*from).iter().position(|table| *table == number);
    ahead.filter_map(steps).max().unwrap_or(0)
}

/// Deletes a table with its sessions; with `chain` those behind it too.
///
/// # Errors
/// No such table, or it is used.
pub fn delete_table(router: &mut Router, number: u32, chain: bool) -> Result<(), OpError> {
    let state = router.state::<Classify>()?;
    state.table(number)?;
    let gone = if chain { state.chain(number) } else { vec![number] };
    let used = |by: String, table: u32| {
        Err(OpError::new(retval::INSTANCE_IN_USE, format!("classifier table {table} is in use by {by}")).key("table").value(table))
    };
    for table in &gone {
        if let Some((place, interface, _)) = state.acls().find(|(_, _, first)| first == table) {
            return used(describe(router, place, interface), *table);
        }
        if let Some((of, _)) = state.filters.all().find(|(_, first)| first == table) {
            return used(filter_name(router, of), *table);
        }
        let leads = |(other, with): &(u32, &Table)| with.next == Some(*table) && !gone.contains(other);
        if let Some((other, _)) = state.tables().find(leads) {
            return used(format!("table {other}, which it follows"), *table);
        }
    }
    for table in gone {
        let keys: Vec<Key> = router.state::<Classify>()?.table(table)?.sessions().map(|(key, _)| *key).collect();
        // No node comes to it any more.
        for key in keys {
            remove_session(router, table, &key)?;
        }
        let state = router.state_mut::<Classify>()?;
        state.tables.remove(&table);
        state.made.remove(&table);
        state.publish_table(table);
    }
    Ok(())
}

/// What a filter is called.
pub(crate) fn filter_name(router: &Router, of: FilterOf) -> String {
    match of {
        FilterOf::Trace => "the filter of traces".into(),
        FilterOf::Capture => "the filter of captures".into(),
        FilterOf::Interface(interface) => format!("the filter of captures on {}", router.interfaces.name(IfIndex(interface))),
    }
}

/// Where a table is used, in words.
pub(crate) fn describe(router: &Router, place: Place, interface: u32) -> String {
    let what = match place {
        Place::Ip4In | Place::Ip6In | Place::L2In => "the input ACL",
        Place::Ip4Out | Place::Ip6Out | Place::L2Out => "the output ACL",
        Place::Ip4Punt | Place::Ip6Punt => return "the punt ACL".into(),
    };
    format!("{what} of {}", router.interfaces.name(IfIndex(interface)))
}

/// Adds a session, or changes what it says. Tables of routes that it names are made where they are missing, as in VPP.
///
/// # Errors
/// No such table, no room; nothing has changed then.
pub fn add_session(router: &mut Router, number: u32, key: Key, session: Session) -> Result<(), OpError> {
    router.state::<Classify>()?.table(number)?;
    let action = hold(router, session.action)?;
    let rule = Rule { deny: session.hit_next == DENY, advance: session.advance, action };
    let done = insert(router, number, key, session, rule);
    let gone = match &done {
        Ok(before) => before.map(|before| before.action),
        Err(_) => Some(session.action),
    };
    if let Some(action) = gone {
        release(router, action);
    }
    done.map(drop)
}

fn insert(router: &mut Router, number: u32, key: Key, session: Session, rule: Rule) -> Result<Option<Session>, OpError> {
    let state = router.state_mut::<Classify>()?;
    let table = state.tables.get_mut(&number).ok_or_else(|| no_table(number))?;
    let (rule, new) = table.rule(rule)?;
    if new {
        // Before a session has it.
        state.publish_table(number);
    }
    state.tables.get_mut(&number).ok_or_else(|| no_table(number))?.insert(key, session, rule)
}

/// Removes a session.
///
/// # Errors
/// No such table or session.
pub fn remove_session(router: &mut Router, number: u32, key: &Key) -> Result<(), OpError> {
    let table = router.state_mut::<Classify>()?.tables.get_mut(&number).ok_or_else(|| no_table(number))?;
    let gone = table.remove(key).ok_or_else(|| {
        OpError::new(retval::NO_SUCH_ENTRY, format!("classifier table {number} has no such session")).key("match")
    })?;
    release(router, gone.action);
    Ok(())
}

/// The action as nodes have it: with a FIB that stays.
fn hold(router: &mut Router, action: Action) -> Result<Action, OpError> {
    let mut fib = |family, id| router.hold_or_make_table(family, id, HOLDER).map_err(OpError::from);
    Ok(match action {
        Action::Fib4(id) => Action::Fib4(fib(FamilyId::V4, id)?),
        Action::Fib6(id) => Action::Fib6(fib(FamilyId::V6, id)?),
        other => other,
    })
}

fn release(router: &mut Router, action: Action) {
    match action {
        Action::Fib4(id) => router.release_made_table(FamilyId::V4, id, HOLDER),
        Action::Fib6(id) => router.release_made_table(FamilyId::V6, id, HOLDER),
        _ => {}
    }
}

/// Classifies packets of an interface by a table and those behind it. As in VPP, what is set stays until it is removed.
///
/// # Errors
/// No such table, or the graph's.
pub fn set_acl(router: &mut Router, place: Place, interface: IfIndex, table: u32) -> Result<(), OpError> {
    // Punted packets come in on any of them.
    let punted = matches!(place, Place::Ip4Punt | Place::Ip6Punt);
    let of = router.interfaces.iter().map(|one| one.index).filter(|one| punted || *one == interface);
    let links: Vec<(u32, u8)> = of.map(|one| (one.0, link_header(router, one))).collect();
    let state = router.state_mut::<Classify>()?;
    state.table(table)?;
    if state.acl(place, interface.0).is_some() {
        return Ok(());
    }
    state.acls.insert((place, interface.0), table);
    state.publish(|view| {
        view.set_first(place, interface.0, table);
        links.iter().for_each(|(interface, link)| view.set_link(*interface, *link));
    });
    if let Err(error) = switch(router, place, interface, true) {
        take_away(router, place, interface)?;
        return Err(error);
    }
    Ok(())
}

/// No longer classifies packets of an interface by a table.
///
/// # Errors
/// It does not.
pub fn unset_acl(router: &mut Router, place: Place, interface: IfIndex, table: u32) -> Result<(), OpError> {
    let state = router.state::<Classify>()?;
    state.table(table)?;
    if state.acl(place, interface.0) != Some(table) {
        let text = format!("classifier table {table} is not {}", describe(router, place, interface.0));
        return Err(OpError::new(retval::NO_SUCH_TABLE, text).key("table").value(table));
    }
    switch(router, place, interface, false)?;
    take_away(router, place, interface)
}

fn take_away(router: &mut Router, place: Place, interface: IfIndex) -> Result<(), OpError> {
    let state = router.state_mut::<Classify>()?;
    state.acls.remove(&(place, interface.0));
    state.publish(|view| view.set_first(place, interface.0, NONE));
    Ok(())
}

fn switch(router: &mut Router, place: Place, interface: IfIndex, on: bool) -> Result<(), OpError> {
    let Some((arc, node)) = nodes::feature(place) else {
        let tx = place == Place::L2Out;
        return router.set_l2_filter(interface, tx, nodes::filter(tx), on).map_err(OpError::from);
    };
    router.graph.set_feature(arc, node, interface, on).map(drop).map_err(|error| graph_error(&error))
}

fn link_header(router: &Router, interface: IfIndex) -> u8 {
    let known = router.interfaces.get(interface).filter(|interface| interface.has_link_layer());
    known.map_or(0, |interface| (ETHERNET + TAG * interface.tags().len()) as u8)
}

/// There is another interface, of which packets may be punted.
fn note_link(router: &mut Router, index: IfIndex) {
    let link = link_header(router, index);
    let Ok(state) = router.state::<Classify>() else { return };
    if [Place::Ip4Punt, Place::Ip6Punt].iter().any(|place| state.acl(*place, 0).is_some()) {
        state.publish(|view| view.set_link(index.0, link));
    }
}

/// An interface goes.
fn forget(router: &mut Router, index: IfIndex) {
    // There is nothing that could not be removed.
    let _ = filter::set(router, FilterOf::Interface(index.0), None);
    let Ok(state) = router.state::<Classify>() else { return };
    let gone: Vec<Place> = state.acls().filter(|(_, interface, _)| *interface == index.0).map(|(place, ..)| place).collect();
    for place in gone {
        // The feature is declared, so that this cannot fail.
        let _ = switch(router, place, index, false);
        let _ = take_away(router, place, index);
    }
}
