//! What changes all the time, from the statistics segment: reading it costs the router nothing.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use quiver_segment::{Error, Segment, View};
use serde_json::{Value, json};

use crate::router::Answer;

/// How long an answer is given again.
const FRESH: Duration = Duration::from_millis(450);

/// Counters of interfaces that are one number, in the order of a row.
const SINGLE: [&str; 6] = ["/if/drops", "/if/rx-miss", "/if/rx-error", "/if/rx-no-buf", "/if/tx-error", "/if/punt"];

/// A router's statistics.
pub struct Live {
    socket: PathBuf,
    segment: Mutex<Option<Segment>>,
    known: Mutex<Option<(Instant, String)>>,
}

impl Live {
    /// The statistics behind a socket.
    pub fn new(socket: PathBuf) -> Self {
        Self { socket, segment: Mutex::default(), known: Mutex::default() }
    }

    /// All counters of this moment, as JSON.
    pub fn read(&self) -> Answer {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, answer)) = known.as_ref()
            && at.elapsed() < FRESH
        {
            return Ok(answer.clone());
        }
        let answer = self.copy().map_err(|error| {
            format!("statistics: {}: {error}; startup.conf needs `statseg {{ default }}'", self.socket.display())
        })?;
        let answer = answer.to_string();
        *known = Some((Instant::now(), answer.clone()));
        Ok(answer)
    }

    fn copy(&self) -> Result<Value, Error> {
        let mut known = self.segment.lock().unwrap_or_else(PoisonError::into_inner);
        let mut segment = match known.take().filter(Segment::is_live) {
            Some(segment) => segment,
            None => Segment::connect(&self.socket)?,
        };
        let value = segment.read(snapshot)?;
        *known = Some(segment);
        Ok(value)
    }
}

fn snapshot(view: &View<'_>) -> Result<Value, Error> {
    let number = |name: &str| view.number(name).unwrap_or(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(json!({
        "now_ms": u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        "started": number("/sys/boottime"),
        "workers": number("/sys/num_worker_threads"),
        "interfaces": interfaces(view)?,
        "nodes": nodes(view)?,
        "drops": drops(view)?,
        "threads": threads(view)?,
        "nat": {
            "sessions": view.threads("/nat44-ed/total-sessions")?.iter().flatten().sum::<u64>(),
            "limit": view.number("/nat44-ed/max-cfg-sessions"),
        },
        "buffers": pools(view),
    }))
}

/// Rows of name, rx packets and bytes, tx packets and bytes, and the counters of [`SINGLE`].
fn interfaces(view: &View<'_>) -> Result<Value, Error> {
    let (rx, tx) = (view.combined("/if/rx")?, view.combined("/if/tx")?);
    let single = SINGLE.iter().map(|name| view.simple(name)).collect::<Result<Vec<_>, _>>()?;
    let row = |(index, name): (usize, &String)| {
        let pair = |all: &[[u64; 2]]| all.get(index).copied().unwrap_or_default();
        let ([rx_packets, rx_bytes], [tx_packets, tx_bytes]) = (pair(&rx), pair(&tx));
        let mut row = vec![json!(name), json!(rx_packets), json!(rx_bytes), json!(tx_packets), json!(tx_bytes)];
        row.extend(single.iter().map(|all| json!(all.get(index).copied().unwrap_or_default())));
        Value::Array(row)
    };
    Ok(view.names("/if/names").iter().enumerate().filter(|(_, name)| !name.is_empty()).map(row).collect())
}

/// Rows of name, calls, packets and clocks of the nodes that have run.
fn nodes(view: &View<'_>) -> Result<Value, Error> {
    let [calls, vectors, clocks] = ["/sys/node/calls", "/sys/node/vectors", "/sys/node/clocks"].map(|name| view.simple(name));
    let (calls, vectors, clocks) = (calls?, vectors?, clocks?);
    let at = |all: &[u64], index: usize| all.get(index).copied().unwrap_or(0);
    let names = view.names("/sys/node/names").iter().enumerate();
    let ran = names.filter(|(index, name)| !name.is_empty() && at(&calls, *index) > 0);
    Ok(ran.map(|(index, name)| json!([name, at(&calls, index), at(&vectors, index), at(&clocks, index)])).collect())
}

/// Rows of node, reason and count of all that was counted.
fn drops(view: &View<'_>) -> Result<Value, Error> {
    let counts = view.simple("/node/errors")?;
    let counted = view.errors().iter().filter_map(|(name, column)| {
        let (node, reason) = name.split_once('/')?;
        let count = *counts.get(*column as usize)?;
        (count > 0).then(|| json!([node, reason, count]))
    });
    Ok(counted.collect())
}

/// Of each thread: packets per node call now, poll iterations a second, and what its nodes have done: calls, packets, clocks.
fn threads(view: &View<'_>) -> Result<Value, Error> {
    let first = |rows: Vec<Vec<u64>>| rows.into_iter().next().unwrap_or_default();
    let rates = first(view.threads("/sys/vector_rate_per_worker")?);
    let loops = first(view.threads("/sys/loops_per_worker")?);
    let sums = ["/sys/node/calls", "/sys/node/vectors", "/sys/node/clocks"]
        .map(|name| Ok::<_, Error>(view.threads(name)?.iter().map(|row| row.iter().sum::<u64>()).collect::<Vec<_>>()));
    let [calls, vectors, clocks] = sums;
    let (calls, vectors, clocks) = (calls?, vectors?, clocks?);
    let at = |all: &[u64], index: usize| all.get(index).copied().unwrap_or(0);
    let row =
        |thread| json!([at(&rates, thread), at(&loops, thread), at(&calls, thread), at(&vectors, thread), at(&clocks, thread)]);
    Ok((0..calls.len()).map(row).collect())
}

/// Buffers by state, over all pools.
fn pools(view: &View<'_>) -> Value {
    let mut sums = [0_u64; 3];
    for name in view.entries() {
        let Some(rest) = name.strip_prefix("/buffer-pools/") else { continue };
        let states = ["used", "cached", "available"];
        let state = rest.rsplit_once('/').and_then(|(_, state)| states.iter().position(|known| *known == state));
        if let (Some(state), Some(count)) = (state, view.number(name)) {
            sums[state] += count;
        }
    }
    json!({ "used": sums[0], "cached": sums[1], "available": sums[2] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiver_graph::stats::Stats;

    #[test]
    fn counters_are_rows_of_what_was_counted() {
        let stats = Stats::new(1 << 24).unwrap();
        stats.set_threads(2);
        for (name, at) in [("local0", 0), ("<b>eth0", 1)] {
            assert!(stats.names("/if/names").set(at, name));
        }
        for (name, at) in [("ip4-input", 0), ("never-called", 1)] {
            assert!(stats.names("/sys/node/names").set(at, name));
        }
        let (received, drops) = (stats.combined("/if/rx", 8), stats.simple("/if/drops", 8));
        let (calls, vectors, errors) =
            (stats.simple("/sys/node/calls", 8), stats.simple("/sys/node/vectors", 8), stats.simple("/node/errors", 8));
        received.set_len(2);
        [&drops, &calls, &vectors, &errors].into_iter().for_each(|counters| counters.set_len(2));
        received.add(1, 1, 2, 120);
        drops.add(0, 1, 5);
        calls.add(1, 0, 3);
        vectors.add(1, 0, 30);
        errors.add(0, 1, 4);
        stats.symlink("/err/ip4-input/ttl <= 1", "/node/errors", 0).unwrap();
        stats.symlink("/err/ip4-drop/no route", "/node/errors", 1).unwrap();
        stats.gauge("/buffer-pools/default-numa-0/used").set(17);
        let mut segment = Segment::of(stats.fd().try_clone_to_owned().unwrap(), None).unwrap();
        let value = segment.read(snapshot).unwrap();
        assert_eq!(
            value["interfaces"],
            json!([["local0", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], ["<b>eth0", 2, 120, 0, 0, 5, 0, 0, 0, 0, 0]])
        );
        assert_eq!(value["nodes"], json!([["ip4-input", 3, 30, 0]]));
        assert_eq!(value["drops"], json!([["ip4-drop", "no route", 4]]));
        assert_eq!(value["buffers"]["used"], 17);
        assert_eq!(value["threads"], json!([[0, 0, 0, 0, 0], [0, 0, 3, 30, 0]]));
    }

    #[test]
    fn without_a_router_the_answer_says_what_is_needed() {
        let error = Live::new("/nonexistent/stats.sock".into()).read().unwrap_err();
        assert!(error.contains("/nonexistent/stats.sock") && error.contains("statseg { default }"), "{error}");
    }
}
