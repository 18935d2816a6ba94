//! `show buffers`, `show memory`, `show physmem`.

use std::fmt::Write as _;

use quiver_command::grammar::Args;
use quiver_command::operation::{Align, OpError, Outcome, Registry, Text, TextTable, View};
use quiver_command::request::Execute;
use quiver_command::{commands, request};
use quiver_net::Router;
use serde::{Deserialize, Serialize};

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowBuffers>().declare::<ShowMemory>().declare::<ShowPhysmem>();
}

fn parse(args: &mut Args<'_>) -> Result<ShowMemory, OpError> {
    let all = [("main-heap", Part::Main), ("stats-segment", Part::Stats), ("map", Part::Map), ("api-segment", Part::Api)];
    let part = args.take_one_of(&all).unwrap_or_default();
    args.take_keyword("verbose");
    Ok(ShowMemory { part })
}

request! {
    /// Shows how many packet buffers there are and where they are.
    pub read ShowBuffers "buffers_show" ["show buffers"] {
    } ignores {
        /// Everything is shown without it.
        "detail",
    }
}

/// A pool of packet buffers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BufferPool {
    /// Its name.
    pub name: String,
    /// Its number.
    pub index: usize,
    /// Memory node.
    pub numa: u32,
    /// Bytes from one buffer to the next.
    pub size: u32,
    /// Bytes of packet data in a buffer.
    pub data_size: u32,
    /// Buffers.
    pub total: u32,
    /// Free ones in the pool.
    pub available: u32,
    /// Free ones at hand of threads.
    pub cached: u32,
    /// Those that hold packets.
    pub used: u32,
}

/// The answer of [`ShowBuffers`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct BufferPools(pub Vec<BufferPool>);

/// All pools.
pub fn pools(router: &Router) -> Vec<BufferPool> {
    let pools = router.graph.pools();
    let Some(region) = pools.first().map(|pool| pool.region().clone()) else { return Vec::new() };
    let own = pools.iter().map(|pool| (format!("default-numa-{}", pool.numa()), pool.numa(), pool.usage()));
    let shared = region.shared_pools().into_iter().map(|pool| (format!("shared-{}", pool.area()), 0, pool.usage()));
    let describe = |(index, (name, numa, usage)): (usize, (String, u32, quiver_buffer::PoolUse))| BufferPool {
        name,
        index,
        numa,
        size: region.geometry().stride(),
        data_size: region.geometry().data_size(),
        total: usage.total,
        available: usage.available,
        cached: usage.cached,
        used: usage.used(),
    };
    own.chain(shared).enumerate().map(describe).collect()
}

impl Execute<Router> for ShowBuffers {
    type Reply = BufferPools;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, BufferPools>, OpError> {
        Ok(Outcome::Done(BufferPools(pools(router))))
    }
}

impl Text for BufferPools {
    fn text(&self, out: &mut String, _view: &View) {
        let columns =
            [("Index", 6), ("NUMA", 6), ("Size", 6), ("Data Size", 11), ("Total", 6), ("Avail", 8), ("Cached", 8), ("Used", 8)];
        let table = TextTable::new().column_with("Pool Name", Align::Left, 20, Align::Left);
        let table = columns.into_iter().fold(table, |table, (heading, width)| table.column(heading, width, Align::Centre));
        table.heading(out);
        for pool in &self.0 {
            let BufferPool { name, index, numa, size, data_size, total, available, cached, used } = pool;
            table.row(out, &[name, index, numa, size, data_size, total, available, cached, used]);
        }
    }
}

/// Which memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// All of it.
    #[default]
    All,
    /// What the process takes from the system.
    Main,
    /// Counters.
    Stats,
    /// The kernel's list of mappings.
    Map,
    /// VPP's shared API memory, which there is none of here.
    Api,
}

/// Shows what memory the router takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShowMemory {
    /// Which memory.
    pub part: Part,
}

commands! {
    read ShowMemory "memory_show" {
        /// Shows what memory the router takes.
        ["show memory"] "[main-heap|stats-segment|map|api-segment] [verbose]" by parse,
    }
}

/// The answer of [`ShowMemory`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Which memory was asked for.
    pub part: Part,
    /// Bytes resident, without huge pages.
    pub resident: u64,
    /// Bytes of huge pages.
    pub huge: u64,
    /// Bytes of address space.
    pub virtual_size: u64,
    /// Bytes of the packet buffers' region.
    pub buffers: usize,
    /// Pages that the region is on.
    pub buffer_pages: String,
    /// What there is to know about those pages.
    pub notice: Option<String>,
    /// Bytes of address space of the counters; what is not used takes no memory.
    pub stats: usize,
    /// The kernel's list, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map: Option<String>,
}

impl Execute<Router> for ShowMemory {
    type Reply = Memory;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Memory>, OpError> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let region = router.graph.pools().first().map(|pool| pool.region());
        let map =
            || std::fs::read_to_string("/proc/self/maps").map_err(|error| OpError::system("cannot read /proc/self/maps", &error));
        Ok(Outcome::Done(Memory {
            part: self.part,
            resident: kilobytes(&status, "VmRSS:"),
            huge: kilobytes(&status, "HugetlbPages:"),
            virtual_size: kilobytes(&status, "VmSize:"),
            buffers: region.map_or(0, |region| region.bytes()),
            buffer_pages: region.map_or("none", |region| region.pages()).to_owned(),
            notice: region.and_then(|region| region.notice()).map(str::to_owned),
            stats: router.graph.stats().size(),
            map: if self.part == Part::Map { Some(map()?) } else { None },
        }))
    }
}

/// A value of /proc/self/status, bytes.
fn kilobytes(status: &str, key: &str) -> u64 {
    let rest = status.lines().find_map(|line| line.strip_prefix(key));
    rest.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Bytes with a binary unit.
pub fn bytes(n: u64) -> String {
    let (value, unit) = match n {
        n if n >= 1 << 30 => (n as f64 / (1_u64 << 30) as f64, "g"),
        n if n >= 1 << 20 => (n as f64 / (1_u64 << 20) as f64, "m"),
        n if n >= 1 << 10 => (n as f64 / 1024.0, "k"),
        n => return n.to_string(),
    };
    format!("{value:.2}{unit}")
}

impl Text for Memory {
    fn text(&self, out: &mut String, _view: &View) {
        if let Some(map) = &self.map {
            out.push_str(map);
            return;
        }
        if matches!(self.part, Part::All | Part::Main) {
            let (resident, huge, size) = (bytes(self.resident), bytes(self.huge), bytes(self.virtual_size));
            let _ = writeln!(out, "process: resident {resident}, huge pages {huge}, address space {size}");
        }
        if self.part == Part::All {
            let _ = writeln!(out, "packet buffers: {} on {}", bytes(self.buffers as u64), self.buffer_pages);
            if let Some(notice) = &self.notice {
                let _ = writeln!(out, "  {notice}");
            }
        }
        if matches!(self.part, Part::All | Part::Stats) {
            let _ = writeln!(
                out,
                "stats segment: {} of address space, of which what is counted takes memory",
                bytes(self.stats as u64)
            );
        }
        if self.part == Part::Api {
            out.push_str("the API has no shared memory\n");
        }
    }
}

request! {
    /// Shows the memory that packets live in.
    pub read ShowPhysmem "physmem_show" ["show physmem"] {
    } ignores {
        /// Everything is shown without it.
        "verbose",
        /// Everything is shown without it.
        "detail",
        /// Everything is shown without it.
        "map",
    }
}

/// The answer of [`ShowPhysmem`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Physmem {
    /// Bytes.
    pub bytes: usize,
    /// Kind of pages.
    pub pages: String,
    /// Buffers in it, those that cross a page with them.
    pub buffers: u32,
    /// Bytes from one to the next.
    pub stride: u32,
    /// Memory nodes.
    pub numa_nodes: u32,
}

impl Execute<Router> for ShowPhysmem {
    type Reply = Option<Physmem>;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Option<Physmem>>, OpError> {
        let region = router.graph.pools().first().map(|pool| pool.region());
        Ok(Outcome::Done(region.map(|region| Physmem {
            bytes: region.bytes(),
            pages: region.pages().to_owned(),
            buffers: region.capacity(),
            stride: region.geometry().stride(),
            numa_nodes: region.numa_nodes(),
        })))
    }
}

impl Text for Physmem {
    fn text(&self, out: &mut String, _view: &View) {
        let Self { pages, buffers, stride, numa_nodes, .. } = self;
        let _ = writeln!(out, "packet region: {} on {pages}, {numa_nodes} memory node(s)", bytes(self.bytes as u64));
        let _ = writeln!(out, "  {buffers} buffers of {stride} bytes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn show_buffers_has_the_usual_columns() {
        let pool = BufferPool {
            name: "default-numa-0".into(),
            index: 0,
            numa: 0,
            size: 2304,
            data_size: 2048,
            total: 4423,
            available: 4423,
            cached: 0,
            used: 0,
        };
        let mut out = String::new();
        BufferPools(vec![pool]).text(&mut out, &View::TEXT);
        assert_eq!(
            out,
            "\
Pool Name            Index NUMA  Size  Data Size  Total  Avail  Cached   Used  
default-numa-0         0     0   2304     2048    4423   4423      0       0   
"
        );
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!(
            (bytes(17), bytes(2048), bytes(3 << 20), bytes(5 << 29)),
            ("17".into(), "2.00k".into(), "3.00m".into(), "2.50g".into())
        );
        assert_eq!(kilobytes("Name:\tx\nVmRSS:\t   12 kB\n", "VmRSS:"), 12 * 1024);
        assert_eq!(kilobytes("", "VmRSS:"), 0);
    }
}
