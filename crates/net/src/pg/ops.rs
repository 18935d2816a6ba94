//! The packet generator's commands.

use std::io::BufReader;
use std::sync::Arc;

use quiver_command::grammar::{Args, Command, IfRef};
use quiver_command::operation::{Access, Align, Invocation, OpError, Operation, Outcome, Registry, Text, TextTable, View, retval};
use quiver_command::request::{Execute, Value};
use quiver_command::{commands, request, words};
use quiver_wire::MacAddr;
use quiver_wire::pcapfile::Reader;
use serde::{Deserialize, Serialize};

use crate::Router;
use crate::files::{Elsewhere, Files, Place, Use};
use crate::interface::ops::{Created, DeleteInterface, resolve};
use crate::pg::parse::{Start, template};
use crate::pg::{Mode, PG, PgError, Sizes, Source, StreamInfo, StreamSpec, Vary};

/// Bytes of a capture file to send at most: it is kept in memory.
const PCAP_MOST: u64 = 1 << 30;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry
        .declare::<CreatePg>()
        .declare::<SetLinkState>()
        .operation::<NewStream>()
        .operation::<ConfigureStream>()
        .declare::<StreamState>()
        .declare::<Capture>()
        .declare::<ShowPg>()
        .values("stream", |router| router.pg_stream_names());
    for command in commands() {
        registry.command(command);
    }
}

fn commands() -> Vec<Command<Router>> {
    const STREAM: &str = "[name <s>] [limit <n>] [rate <pps>] [size <range>] [interface <if>] [tx-interface <if>] [node <n>] \
        [source <if>] [worker <n>] [maxframe <n>] [seed <n>] [data {...}] [pcap <file>] [buffer-flags <f>] [buffer-offload-flags <f>]";
    vec![
        Command {
            path: "delete packet-generator interface",
            syntax: "<if>",
            help: "Removes a packet-generator interface with its streams",
            parse: |args, _| Ok(Invocation::new::<DeleteInterface>(DeleteInterface::of(&PG, args.interface()?))),
        },
        Command {
            path: "packet-generator new",
            syntax: STREAM,
            help: "Defines a stream, from a description of headers or from a capture file; in { } or without",
            parse: |args, _| {
                let request = match args.group()? {
                    Some(mut group) => {
                        let request = parse_stream(&mut group)?;
                        group.finish()?;
                        request
                    }
                    None => parse_stream(args)?,
                };
                Ok(Invocation::new::<NewStream>(request))
            },
        },
        Command {
            path: "packet-generator configure",
            syntax: "<stream> [limit <n>] [rate <pps>] [size <range>] [maxframe <n>] [worker <n>]",
            help: "Changes a stream; it runs so when it is enabled next",
            parse: |args, _| {
                let name = args.word("stream")?.into_owned();
                let mut change = parse_stream(args)?;
                change.name = name;
                Ok(Invocation::new::<ConfigureStream>(change))
            },
        },
    ]
}

impl From<PgError> for OpError {
    fn from(error: PgError) -> Self {
        let (code, key) = match &error {
            PgError::NoStream(_) => (retval::NO_SUCH_ENTRY, "stream"),
            PgError::NotPg(_) => (retval::INVALID_INTERFACE, "interface"),
            PgError::NoNode(_) => (retval::NO_SUCH_NODE, "node"),
            PgError::NoWorker(..) => (retval::INVALID_WORKER, "worker"),
            PgError::Empty => (retval::INVALID_VALUE, "data"),
            PgError::Interface(error) => return error.clone().into(),
            PgError::Graph(error) => return crate::ops::graph_error(error),
        };
        OpError::new(code, error.to_string()).key(key)
    }
}

/// Makes a packet-generator interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreatePg {
    /// Number in the name.
    pub number: u32,
    /// Link address.
    #[serde(default)]
    pub mac: Option<[u8; 6]>,
    /// What its packets begin with.
    #[serde(default, skip_serializing_if = "Mode::is_ethernet")]
    pub mode: Mode,
}

commands! {
    change CreatePg "pg_interface_create" {
        /// Makes a packet-generator interface and prints its name.
        ["create packet-generator interface"] "<pg> [hw-addr <mac>] [mode ethernet|ip4|ip6]" by parse_create => create_command,
    }
}

fn create_command(CreatePg { number, mac, mode }: &CreatePg) -> Option<String> {
    let mode = if mode.is_ethernet() { String::new() } else { format!(" mode {}", mode.text()) };
    let hw_addr = mac.map(|mac| format!(" hw-addr {}", MacAddr(mac))).unwrap_or_default();
    Some(format!("create packet-generator interface pg{number}{hw_addr}{mode}"))
}

fn parse_create(args: &mut Args<'_>) -> Result<CreatePg, OpError> {
    let name = args.word("pg interface such as pg0")?.into_owned();
    let number = name
        .strip_prefix("pg")
        .unwrap_or(&name)
        .parse::<u32>()
        .map_err(|_| OpError::invalid("interface", &name, "a packet-generator interface is called pg and a number"))?;
    let mut request = CreatePg { number, mac: None, mode: Mode::Ethernet };
    while !args.is_empty() {
        if args.take_keyword("hw-addr") {
            request.mac = Some(args.mac("MAC address")?);
        } else if args.take_keyword("mode") {
            request.mode = args.expect_one_of(&[("ethernet", Mode::Ethernet), ("ip4", Mode::Ip4), ("ip6", Mode::Ip6)])?;
        } else {
            return Err(args.unexpected());
        }
    }
    Ok(request)
}

impl Execute<Router> for CreatePg {
    type Reply = Created;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Created>, OpError> {
        if self.mac.is_some() && !self.mode.is_ethernet() {
            let error = OpError::new(retval::INVALID_VALUE, "packets without Ethernet header have no MAC address").key("hw-addr");
            return Err(error.remedy("leave it out, or choose `mode ethernet'"));
        }
        let index = router.pg_create_interface(self.number, self.mac.map(MacAddr), self.mode)?;
        router.made_by(index, &self);
        Ok(Outcome::Done(Created::one(router, index)))
    }
}

/// A range of sizes: `64-128` counts up, `64+128` draws.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeRange {
    /// Smallest, bytes without FCS.
    pub low: usize,
    /// Largest.
    pub high: usize,
    /// Drawn at random instead of counted up.
    #[serde(default)]
    pub random: bool,
}

impl std::str::FromStr for SizeRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (low, high, random) = match (text.split_once('-'), text.split_once('+')) {
            (Some((low, high)), _) => (low, high, false),
            (None, Some((low, high))) => (low, high, true),
            (None, None) => (text, text, false),
        };
        let number = |t: &str| t.parse::<usize>().ok().filter(|n| (1..=65_535).contains(n));
        match (number(low), number(high)) {
            (Some(low), Some(high)) if low <= high => Ok(Self { low, high, random }),
            _ => Err(format!("`{text}' is not a range of sizes such as 64-1518 (counted up) or 64+1518 (drawn)")),
        }
    }
}

/// A stream as described; what is absent has a default, or stays as it is.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamRequest {
    /// Name.
    pub name: String,
    /// Packets to send; 0: without end.
    pub limit: Option<u64>,
    /// Packets a second; 0: as fast as possible.
    pub rate: Option<f64>,
    /// Sizes.
    pub size: Option<SizeRange>,
    /// Interface that the packets come in on.
    pub interface: Option<IfRef>,
    /// Node that they go to.
    pub node: Option<String>,
    /// Worker, from 0.
    pub worker: Option<usize>,
    /// Largest vector.
    pub max_frame: Option<usize>,
    /// Seed of what is drawn.
    pub seed: Option<u64>,
    /// Headers as described.
    pub data: Option<String>,
    /// Capture file to send.
    pub pcap: Option<String>,
}

fn parse_stream(args: &mut Args<'_>) -> Result<StreamRequest, OpError> {
    let mut r = StreamRequest::default();
    while !args.is_empty() {
        if args.take_keyword("name") {
            r.name = args.word("name")?.into_owned();
        } else if args.take_keyword("limit") {
            // Scripts for VPP write -1 for a stream without end.
            r.limit = Some(if args.take_keyword("-1") { 0 } else { args.number("limit")? });
        } else if args.take_keyword("rate") {
            r.rate = Some(args.take("rate")?);
        } else if args.take_keyword("size") {
            r.size = Some(args.take("size")?);
        } else if args.take_keyword("interface") || args.take_keyword("source") {
            r.interface = Some(args.interface()?);
        } else if args.take_keyword("tx-interface") {
            // VPP's word for nodes that want a tx interface with the packet; the lanes here carry it by themselves.
            args.interface()?;
        } else if args.take_keyword("node") {
            r.node = Some(args.word("node")?.into_owned());
        } else if args.take_keyword("worker") {
            r.worker = Some(args.number("worker")?);
        } else if args.take_keyword("maxframe") {
            r.max_frame = Some(args.number_in("maxframe", 1..=1024)?);
        } else if args.take_keyword("seed") {
            r.seed = Some(args.number("seed")?);
        } else if args.take_keyword("data") {
            r.data = Some(args.expect_group()?.rest().to_owned());
        } else if args.take_keyword("pcap") {
            r.pcap = Some(args.word("file")?.into_owned());
        } else if args.take_keyword("buffer-flags") || args.take_keyword("buffer-offload-flags") {
            args.word("flags")?;
        } else {
            return Err(args.unexpected());
        }
    }
    if r.rate.is_some_and(|rate| !rate.is_finite() || rate < 0.0) {
        return Err(OpError::invalid("rate", r.rate.unwrap_or(0.0), "a rate is a number of packets a second"));
    }
    Ok(r)
}

impl StreamRequest {
    fn sizes(&self) -> Option<Sizes> {
        let vary = |random| if random { Vary::Random } else { Vary::Increment };
        self.size.map(|s| Sizes { low: s.low, high: s.high, vary: vary(s.random) })
    }

    /// What the stream sends, and the capture file where it stands in one.
    fn source(&self, router: &Router, start: Start) -> Result<Contents, OpError> {
        match (&self.data, &self.pcap) {
            (Some(_), Some(_)) => Err(OpError::invalid("data", "data and pcap", "a stream has either data or pcap")),
            (None, None) => Err(OpError::unspecified("a stream needs data or pcap")
                .key("data")
                .remedy("such as `data { ... }' or `pcap in.pcap'")),
            (Some(data), None) => {
                let template = template(data, start).map_err(|e| OpError::unspecified(e.to_string()).key("data"))?;
                Ok(Contents::Made(Source::Made(template)))
            }
            (None, Some(path)) => Ok(Contents::Recorded(Files::place(router, path, Use::Read)?)),
        }
    }
}

/// What a stream sends, before it is read.
enum Contents {
    Made(Source),
    Recorded(Place),
}

/// All packets of a capture file.
fn read_pcap(place: &Place) -> Result<Source, OpError> {
    let failed = |e: String| {
        let path = place.path().display();
        OpError::new(retval::CANNOT_CREATE_PCAP_FILE, format!("{path}: {e}")).key("pcap").value(path)
    };
    let file = place.open().map_err(|error| place.no_capture("read", &error))?;
    let size = file.metadata().map_err(|e| failed(e.to_string()))?.len();
    if size > PCAP_MOST {
        return Err(failed(format!("has more than {} MB; cut it with `editcap -c'", PCAP_MOST >> 20)));
    }
    let file = std::io::Read::take(file, PCAP_MOST);
    let reader = Reader::new(BufReader::new(file)).map_err(|e| failed(e.to_string()))?;
    let packets: Result<Vec<Vec<u8>>, _> = reader.map(|p| p.map(|p| p.bytes)).collect();
    packets.map(Source::Recorded).map_err(|e| failed(e.to_string()))
}

request! {
    /// Sets the link of a packet-generator interface up or down.
    pub change SetLinkState "pg_link_state_set" ["test interface link-state"] {
        /// A packet-generator interface.
        pub interface: IfRef = "<pg>" name("interface"),
        /// Whether there is a link.
        pub up: bool = "up|down" required(),
    }
}

impl Execute<Router> for SetLinkState {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &self.interface)?;
        router.pg_set_link(index, self.up)?;
        Ok(Outcome::Done(()))
    }
}

/// Defines a stream.
pub struct NewStream;

impl Operation<Router> for NewStream {
    const NAME: &'static str = "pg_stream_new";
    const ACCESS: Access = Access::Change;
    type Request = StreamRequest;
    type Reply = ();

    fn run(router: &mut Router, request: StreamRequest) -> Result<Outcome<Router, ()>, OpError> {
        let source = request.interface.as_ref().map(|name| resolve(router, name)).transpose()?;
        let mode = source.and_then(|interface| router.pg_mode(interface)).unwrap_or_default();
        let node = request.node.clone().unwrap_or_else(|| mode.input().into());
        let start = match node.as_str() {
            name if name.starts_with("ip4-") => Start::Ip4,
            name if name.starts_with("ip6-") => Start::Ip6,
            _ => Start::Ethernet,
        };
        match request.source(router, start)? {
            Contents::Made(source) => new_stream(router, &request, &node, source).map(Outcome::Done),
            Contents::Recorded(place) => {
                let then = move |router: &mut Router, source| new_stream(router, &request, &node, source);
                Ok(Outcome::job(Elsewhere::new(move || read_pcap(&place), then).alone()))
            }
        }
    }
}

fn new_stream(router: &mut Router, request: &StreamRequest, node: &str, source: Source) -> Result<(), OpError> {
    let interface = match &request.interface {
        Some(name) => resolve(router, name)?,
        None => crate::IfIndex::LOCAL0,
    };
    // As VPP: a capture is sent once unless told otherwise.
    let once = match &source {
        Source::Recorded(packets) => Some(packets.len() as u64),
        Source::Made(_) => None,
    };
    // A capture without packets has nothing to repeat.
    let empty = matches!(&source, Source::Recorded(packets) if packets.is_empty());
    let limit = request.limit.filter(|n| *n != 0).or(once.filter(|_| request.limit.is_none()));
    let spec = StreamSpec {
        name: if request.name.is_empty() { router.pg_free_name() } else { request.name.clone() },
        limit: if empty { Some(0) } else { limit },
        rate: request.rate.filter(|r| *r > 0.0),
        sizes: request.sizes(),
        worker: request.worker.unwrap_or(0),
        max_frame: request.max_frame,
        seed: request.seed.unwrap_or(1),
        source,
    };
    router.pg_new_stream(spec, interface, node).map_err(OpError::from)
}

/// Changes a stream.
pub struct ConfigureStream;

impl Operation<Router> for ConfigureStream {
    const NAME: &'static str = "pg_stream_configure";
    const ACCESS: Access = Access::Change;
    type Request = StreamRequest;
    type Reply = ();

    fn run(router: &mut Router, request: StreamRequest) -> Result<Outcome<Router, ()>, OpError> {
        let fixed = [
            ("interface", request.interface.is_some()),
            ("node", request.node.is_some()),
            ("data", request.data.is_some()),
            ("pcap", request.pcap.is_some()),
        ];
        if let Some((key, _)) = fixed.iter().find(|(_, given)| *given) {
            let error = OpError::new(retval::UNSUPPORTED, format!("{key} cannot be changed")).key(*key);
            return Err(error.remedy("delete the stream and define it again"));
        }
        let workers = router.graph.fleet().threads().len();
        if let Some(worker) = request.worker.filter(|w| *w >= workers) {
            return Err(PgError::NoWorker(worker, workers).into());
        }
        let name = request.name.clone();
        let change = |spec: &mut StreamSpec| {
            if let Some(limit) = request.limit {
                spec.limit = Some(limit).filter(|n| *n != 0);
            }
            if let Some(rate) = request.rate {
                spec.rate = Some(rate).filter(|r| *r > 0.0);
            }
            spec.sizes = request.sizes().or(spec.sizes);
            spec.worker = request.worker.unwrap_or(spec.worker);
            spec.max_frame = request.max_frame.or(spec.max_frame);
            spec.seed = request.seed.unwrap_or(spec.seed);
        };
        router.pg_configure(&name, change)?;
        Ok(Outcome::Done(()))
    }
}

words! {
    /// What happens to a stream.
    pub enum Action {
        /// Starts from its beginning.
        Enable = "enable",
        /// Stops.
        Disable = "disable",
        /// Goes away.
        Delete = "delete",
    }
}

/// Starts, stops or removes streams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamState {
    /// Stream; all where absent (not for `delete`).
    pub name: Option<String>,
    /// Change.
    pub action: Action,
}

commands! {
    change StreamState "pg_stream_state" {
        /// Starts a stream from its beginning, or all.
        ["packet-generator enable-stream"] { name: Option<String> = "<stream>" } => { name, action: Action::Enable },
        /// Stops a stream, or all.
        ["packet-generator disable-stream"] { name: Option<String> = "<stream>" } => { name, action: Action::Disable },
        /// Removes a stream.
        ["packet-generator delete"] { name: String = "<stream>" } => { name: Some(name), action: Action::Delete },
    }
}

impl Execute<Router> for StreamState {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let name = self.name.as_deref();
        let result = match (self.action, name) {
            (Action::Enable, _) => router.pg_enable(name),
            (Action::Disable, _) => router.pg_disable(name),
            (Action::Delete, Some(name)) => router.pg_delete_stream(name),
            (Action::Delete, None) => return Err(OpError::unspecified("which stream?").key("name")),
        };
        result?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Writes what leaves on a packet-generator interface to a new file, or ends that.
    pub change Capture "pg_capture" ["packet-generator capture"] {
        /// Packet-generator interface.
        pub interface: IfRef = "<if>",
        /// File to make.
        pub file: Option<String> = "pcap <file>",
        /// Packets; without end where absent.
        pub count: Option<u64> = "count <n>",
        /// End it.
        pub disable: bool = "disable",
    }
}

impl Execute<Router> for Capture {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let interface = resolve(router, &self.interface)?;
        if self.disable {
            let stopped = router.pg_capture_stop(interface)?;
            let Some((written, missed)) = stopped else { return Ok(Outcome::Done(())) };
            return Ok(Outcome::job(Elsewhere::of(written, move |_, ()| {
                if missed == 0 {
                    return Ok(());
                }
                let text = format!("{missed} more packets were missed: the file was written too slowly");
                Err(OpError::new(retval::CANNOT_CREATE_PCAP_FILE, text).key("file"))
            })));
        }
        let Some(file) = &self.file else { return Err(OpError::unspecified("which file?").key("pcap")) };
        router.pg_expect(interface)?;
        let (place, count) = (Files::place(router, file, Use::Write)?, self.count);
        let new = place.clone();
        let check = move || new.check_new().map_err(|error| new.no_capture("write", &error));
        Ok(Outcome::job(Elsewhere::new(check, move |router, ()| {
            let (name, create) = (place.path().display().to_string(), Arc::new(move || place.create_new()));
            router.pg_capture(interface, name, create, count).map_err(OpError::from)
        })))
    }
}

request! {
    /// Shows streams: whether they run, and what they have sent.
    pub read ShowPg "pg_show" ["show packet-generator"] {
    } ignores {
        /// All is shown anyway.
        "verbose",
    }
}

/// A stream as shown.
#[derive(Debug, Clone, Serialize)]
pub struct StreamLine {
    /// Name.
    pub name: String,
    /// Whether it runs, or what it sent is still under way.
    pub enabled: bool,
    /// Packets sent since it was enabled.
    pub sent: u64,
    /// Packets to send; absent: without end.
    pub limit: Option<u64>,
    /// Packets a second; 0: as fast as possible.
    pub rate_pps: f64,
    /// Smallest and largest size, bytes.
    pub size: (usize, usize),
    /// Data bytes of a packet buffer.
    pub buffer_size: u32,
    /// Worker.
    pub worker: usize,
    /// Interface that it comes in on.
    pub interface: String,
    /// Node that it goes to.
    pub node: String,
}

/// The answer of [`ShowPg`].
#[derive(Debug, Clone, Serialize)]
pub struct StreamList {
    /// Streams by name.
    pub streams: Vec<StreamLine>,
}

/// A number as VPP prints rates: `1.50e6`.
fn exponent(value: f64) -> String {
    if value == 0.0 { "0.00e0".into() } else { format!("{value:.2e}") }
}

impl Text for StreamList {
    fn text(&self, out: &mut String, _: &View) {
        if self.streams.is_empty() {
            out.push_str("no streams currently defined\n");
            return;
        }
        let table = TextTable::new()
            .column_with("Name", Align::Left, 16, Align::Left)
            .column("Enabled", 12, Align::Centre)
            .column("Count", 16, Align::Centre)
            .column_with("Parameters", Align::Left, 0, Align::Left);
        table.heading(out);
        for s in &self.streams {
            let enabled = if s.enabled { "Yes" } else { "No" };
            let parameters = format!(
                "limit {}, rate {} pps, size {}-{}, buffer-size {}, worker {}, ",
                s.limit.unwrap_or(0),
                exponent(s.rate_pps),
                s.size.0,
                s.size.1,
                s.buffer_size,
                s.worker
            );
            table.row(out, &[&s.name, &enabled, &s.sent, &parameters]);
        }
    }
}

impl Execute<Router> for ShowPg {
    type Reply = StreamList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, StreamList>, OpError> {
        let sizes = |info: &StreamInfo| match (&info.spec.sizes, &info.spec.source) {
            (Some(s), _) => (s.low, s.high),
            (None, Source::Made(template)) => (template.bytes.len(), template.bytes.len()),
            (None, Source::Recorded(packets)) => {
                let lengths = || packets.iter().map(Vec::len);
                (lengths().min().unwrap_or(0), lengths().max().unwrap_or(0))
            }
        };
        let streams = router.pg_streams();
        let buffer_size = router.graph.pools()[0].region().geometry().data_size();
        let line = |info: StreamInfo| StreamLine {
            enabled: info.enabled,
            sent: info.sent,
            limit: info.spec.limit,
            rate_pps: info.spec.rate.unwrap_or(0.0),
            size: sizes(&info),
            buffer_size,
            worker: info.spec.worker,
            interface: router.interfaces.name(info.interface),
            node: info.node.clone(),
            name: info.spec.name,
        };
        Ok(Outcome::Done(StreamList { streams: streams.into_iter().map(line).collect() }))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Harness;

    fn run(h: &mut Harness, line: &str) -> String {
        crate::ops::testing::run(&mut h.router, line)
    }

    const DATA: &str = "data { IP4: 02:00:00:00:00:01 -> 02:00:00:00:00:02 UDP: 10.0.0.1 -> 10.0.0.2 UDP: 1 -> 2 incrementing 30 }";

    #[test]
    fn a_stream_is_defined_run_and_shown_as_in_vpp() {
        let mut h = Harness::new();
        assert_eq!(run(&mut h, "show packet-generator"), "no streams currently defined\n");
        assert_eq!(run(&mut h, "create packet-generator interface pg0"), "pg0\n");
        run(&mut h, &format!("packet-generator new {{ name x limit 3 size 64-64 interface pg0 node null-node {DATA} }}"));
        assert_eq!(
            run(&mut h, "show packet-generator"),
            "Name               Enabled        Count     Parameters\n\
             x                    No             0       limit 3, rate 0.00e0 pps, size 64-64, buffer-size 2048, worker 0, \n"
        );
        run(&mut h, "packet-generator enable");
        assert!(run(&mut h, "show packet-generator").contains("Yes"));
        h.until("stops", |h| {
            h.run();
            !run(h, "show packet-generator").contains("Yes")
        });
        assert_eq!(h.count("null-node", "blackholed packets"), 3);
        run(&mut h, "packet-generator configure x limit 5 rate 1e6");
        assert!(run(&mut h, "show packet-generator").contains("limit 5, rate 1.00e6 pps"));
        run(&mut h, &format!("packet-generator new {{ name x limit -1 size 64-64 interface pg0 node null-node {DATA} }}"));
        assert!(run(&mut h, "show packet-generator").contains("limit 0, rate 0.00e0 pps"));
        run(&mut h, "packet-generator delete x");
        assert_eq!(run(&mut h, "show packet-generator"), "no streams currently defined\n");
    }

    #[test]
    fn mistakes_are_one_line() {
        let mut h = Harness::new();
        let _folder = crate::ops::testing::OwnFolder::of(&mut h.router, "pg");
        run(&mut h, "create packet-generator interface pg0");
        for (line, expected) in [
            ("create packet-generator interface pg0".to_owned(), "exists"),
            ("create packet-generator interface eth0".to_owned(), "pg and a number"),
            ("packet-generator new { name x interface pg0 }".to_owned(), "needs data or pcap"),
            ("packet-generator new { name x interface pg9 data { } }".to_owned(), "unknown"),
            ("packet-generator new { name x pcap nonexistent.pcap }".to_owned(), "nonexistent.pcap"),
            ("packet-generator new { name x data { IP4: a -> b } }".to_owned(), "`a'"),
            (format!("packet-generator new {{ name x size 9-3 {DATA} }}"), "`9-3'"),
            (format!("packet-generator new {{ name x rate -1 {DATA} }}"), "rate"),
            (format!("packet-generator new {{ name x node nowhere {DATA} }}"), "nowhere"),
            ("packet-generator enable x".to_owned(), "no stream named `x'"),
            ("packet-generator delete x".to_owned(), "no stream named `x'"),
            ("packet-generator capture pg0".to_owned(), "which file"),
            ("packet-generator capture local0 pcap x.pcap".to_owned(), "not a packet-generator"),
        ] {
            let error = crate::ops::testing::error(&mut h.router, &line);
            assert!(error.contains(expected) && !error.contains('\n'), "{line}: {error}");
        }
        assert_eq!(run(&mut h, "show packet-generator"), "no streams currently defined\n");
    }

    #[test]
    fn interfaces_may_carry_ip_packets_without_ethernet_headers() {
        let mut h = Harness::new();
        assert_eq!(run(&mut h, "create packet-generator interface pg4 mode ip4"), "pg4\n");
        assert_eq!(run(&mut h, "create packet-generator interface pg6 mode ip6"), "pg6\n");
        for line in ["pg4 10.0.4.1/24", "pg6 2001:db8:6::1/64"] {
            run(&mut h, &format!("set interface ip address {line}"));
        }
        run(&mut h, "set interface state pg4 up");
        run(&mut h, "set interface state pg6 up");
        // A host behind pg4 pings the router; the answer goes back as it came, without a neighbour being asked for.
        let data = "data { ICMP: 10.0.4.2 -> 10.0.4.1 ICMP echo_request incrementing 40 }";
        run(&mut h, &format!("packet-generator new {{ name x limit 1 size 68-68 interface pg4 {data} }}"));
        assert!(run(&mut h, "show packet-generator").contains('x'));
        let stream = h.router.pg_streams().remove(0);
        assert_eq!(stream.node, "ip4-input");
        run(&mut h, "packet-generator enable");
        h.until("stops", |h| {
            h.run();
            !run(h, "show packet-generator").contains("Yes")
        });
        let pg4 = h.router.interfaces.by_name("pg4").unwrap().index;
        assert_eq!(h.router.graph.interfaces().tx.sum(pg4.0).0, 1, "{:?}", h.counts());
        let links = ["pg4", "pg6"].map(|name| h.router.interfaces.by_name(name).unwrap().link_local());
        assert_ne!(links[0], links[1]);
        let wrong =
            crate::ops::testing::error(&mut h.router, "create packet-generator interface pg7 mode ip4 hw-addr 02:00:00:00:00:01");
        assert!(wrong.contains("have no MAC address"), "{wrong}");
    }
}
