//! Filters of traces and captures: a chain of tables for each, and a packet that has a session in one of them is taken.

use std::sync::Arc;

use quiver_command::operation::{OpError, retval};
use quiver_graph::{IfIndex, Published, Snapshot, Wanted};
use quiver_net::Router;
use quiver_net::filter::PacketFilters;
use quiver_wire::pcapfile::missing_header;

use crate::control::{Classify, add_session, add_table, delete_table, remove_session, set_next};
use crate::table::{Session, Shape};
use crate::view::{Action, CHAIN_MAX, DENY, FilterOf, View};

/// Tells the router's traces and captures of the filters.
pub(crate) fn offer(router: &mut Router, view: &Published<View>) {
    // As in VPP: where nothing is chosen, a trace takes all packets, and a capture none.
    let trace = wanted(view.snapshot(), true, |view| view.filters.trace);
    let view = view.snapshot();
    let capture = move |interface: Option<IfIndex>| {
        let interface = interface.map(|interface| interface.0);
        wanted(view.clone(), false, move |view| view.filters.of_capture(interface))
    };
    router.add_part(PacketFilters { trace, capture: Arc::new(capture) });
}

/// A filter whose first table `first` knows; what it says without one.
fn wanted(view: Snapshot<View>, without: bool, first: impl Fn(&View) -> Option<u32> + Send + Sync + 'static) -> Wanted {
    Arc::new(move |pulled: &[u8], bytes: &[u8], len| {
        let view = view.newest();
        first(&view).map_or(without, |first| is_in(&view, first, &[&missing_header(pulled, bytes, len), bytes].concat()))
    })
}

/// Whether a frame has a session in a chain. Tables that begin with a node's data have the frame here, as in VPP.
fn is_in(view: &View, first: u32, frame: &[u8]) -> bool {
    let read = |_, skip: usize, to: &mut [u8]| {
        let from = frame.get(skip..).unwrap_or_default();
        to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    };
    view.classify(first, read, |hits, entry| hits.count_shared(entry)).is_some_and(|found| found.rule.is_some())
}

/// Sets the first table of a filter; without one it is gone, and so are the tables that [`add`] made for it.
///
/// # Errors
/// No such table.
pub fn set(router: &mut Router, of: FilterOf, table: Option<u32>) -> Result<(), OpError> {
    let state = router.state_mut::<Classify>()?;
    table.map(|table| state.table(table).map(drop)).transpose()?;
    let before = state.filters.get(of);
    state.filters.set(of, table);
    state.publish_filters();
    let old = before.map(|before| state.chain(before)).unwrap_or_default();
    let kept: Vec<u32> = state.filters.all().flat_map(|(_, first)| state.chain(first)).collect();
    let gone: Vec<u32> = old.into_iter().filter(|table| state.made.contains(table) && !kept.contains(table)).collect();
    for table in &gone {
        set_next(router, *table, None)?;
    }
    for table in gone {
        // One that something else uses by now stays.
        if delete_table(router, table, false).is_ok() {
            router.state_mut::<Classify>()?.made.remove(&table);
        }
    }
    Ok(())
}

/// Sorts a chain by how much its masks say, the most first; gives the new first table.
///
/// # Errors
/// No such table.
pub fn sort(router: &mut Router, mut chain: Vec<u32>) -> Result<Option<u32>, OpError> {
    let state = router.state::<Classify>()?;
    let bits = |table: &u32| -> u32 {
        state.table(*table).map(|table| table.shape.mask.iter().map(|byte| byte.count_ones()).sum()).unwrap_or_default()
    };
    chain.sort_by_cached_key(|table| std::cmp::Reverse(bits(table)));
    for table in &chain {
        set_next(router, *table, None)?;
    }
    let mut next = None;
    for table in chain.into_iter().rev() {
        set_next(router, table, next)?;
        next = Some(table);
    }
    Ok(next)
}

/// The table of a chain that compares exactly these bytes.
pub fn compatible(router: &Router, first: Option<u32>, skip: u32, mask: &[u8]) -> Result<Option<u32>, OpError> {
    let state = router.state::<Classify>()?;
    let fits = |table: &u32| state.table(*table).is_ok_and(|table| table.shape.skip == skip && table.shape.mask == mask);
    Ok(first.and_then(|first| state.chain(first).into_iter().find(fits)))
}

/// Has a filter take the packets that have `values` under a mask.
///
/// # Errors
/// A mask that cannot be, or no room; nothing has changed then.
pub fn add(router: &mut Router, of: FilterOf, shape: Shape, values: &[u8]) -> Result<(), OpError> {
    let state = router.state::<Classify>()?;
    let first = state.filters.get(of);
    let mut chain = first.map(|first| state.chain(first)).unwrap_or_default();
    let known = compatible(router, first, shape.skip, &shape.mask)?;
    if known.is_none() && chain.len() >= CHAIN_MAX {
        let text = format!("a filter has at most {CHAIN_MAX} different masks");
        return Err(OpError::new(retval::TABLE_TOO_BIG, text).key("mask"));
    }
    let table = match known {
        Some(known) => known,
        None => add_table(router, None, shape, None)?,
    };
    let key = router.state::<Classify>()?.table(table)?.key(values);
    let session = Session { hit_next: DENY, opaque: 0, advance: 0, action: Action::None };
    if let Err(error) = add_session(router, table, key, session) {
        if known.is_none() {
            delete_table(router, table, false)?;
        }
        return Err(error);
    }
    if known.is_some() {
        return Ok(());
    }
    router.state_mut::<Classify>()?.made.insert(table);
    chain.push(table);
    let first = sort(router, chain)?;
    set(router, of, first)
}

/// No longer takes them.
///
/// # Errors
/// The filter has no such mask, or not these values under it.
pub fn remove(router: &mut Router, of: FilterOf, skip: u32, mask: &[u8], values: &[u8]) -> Result<(), OpError> {
    let first = router.state::<Classify>()?.filters.get(of);
    let Some(table) = compatible(router, first, skip, mask)? else {
        return Err(OpError::new(retval::NO_SUCH_TABLE, "the filter has no such mask").key("mask"));
    };
    let key = router.state::<Classify>()?.table(table)?.key(values);
    remove_session(router, table, &key)
}
