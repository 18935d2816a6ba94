//! Traffic profiles: what a trial sends, as YAML or JSON. `apps/quiver-tester/README.md` documents every key.

pub mod field;
pub mod outer;
pub mod replay;
pub mod size;
pub mod supply;
#[cfg(test)]
mod tests;
pub mod tuples;
pub mod zipf;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use quiver_wire::MacAddr;
use quiver_wire::tcp::TcpFlags;
use serde::{Deserialize, Serialize};

pub use field::{Field, Lit, Value};
pub use outer::{Label, Payload, Tunnel};
pub use replay::Replay;
pub use size::Size;
pub use tuples::Tuples;

use crate::pace::Departures;
use crate::stamped::Timestamps;
use crate::units::{Rate, Span};

/// The schema that this program reads.
pub const SCHEMA: &str = "quiver-profile/1";
/// Most streams of a profile.
const STREAMS: usize = 256;

/// Why a profile cannot be used: one line that says where and what.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The file cannot be read.
    #[error("{file}: {error}")]
    File {
        /// The file.
        file: String,
        /// What the system said.
        error: String,
    },
    /// It is no YAML or JSON.
    #[error("{file}: {error}")]
    Syntax {
        /// The file.
        file: String,
        /// Where and what.
        error: String,
    },
    /// Something in it cannot be.
    #[error("{file}: {}: {}", on_one_line(path), on_one_line(error))]
    Content {
        /// The file.
        file: String,
        /// Place in the document.
        path: String,
        /// What is wrong and what would be right.
        error: String,
    },
}

/// A profile.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// [`SCHEMA`].
    #[serde(default)]
    pub schema: Option<String>,
    /// Its name.
    pub name: String,
    /// What it is for.
    #[serde(default)]
    pub description: Option<String>,
    /// Every stream also runs the other way, its addresses exchanged.
    #[serde(default)]
    pub bidirectional: bool,
    /// The streams.
    pub streams: Vec<Stream>,
}

/// Where a stream is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The first port.
    #[default]
    Left,
    /// The second port.
    Right,
}

impl Side {
    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }
}

/// Whether frames are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SignatureMode {
    /// Each frame has a signature.
    #[default]
    Full,
    /// Packets of a capture: each that has room for it; the others are counted only.
    Auto,
    /// None has: they are counted only.
    None,
}

/// How many frames of a stream have a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Signing {
    /// All of them.
    Full,
    /// Some: the others are counted only.
    Part,
    /// None: all are counted only.
    None,
}

/// A stream.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// Its name.
    pub name: String,
    /// Port that sends it.
    #[serde(default)]
    pub from: Side,
    /// Part of the trial's rate, in relation to those of the other streams without a rate of their own.
    #[serde(default)]
    pub share: Option<f64>,
    /// A rate of its own, whatever the trial's is.
    #[serde(default, deserialize_with = "rate")]
    pub rate: Option<Rate>,
    /// How its departures are spread.
    #[serde(default)]
    pub departures: Departures,
    /// Departures in bursts rather than all the time.
    #[serde(default)]
    pub burst: Option<Burst>,
    /// How long after the beginning of the trial, or the end of the stream that it follows, it begins.
    #[serde(default)]
    pub start: Option<Span>,
    /// Stream that it follows: it begins when that one has ended.
    #[serde(default)]
    pub after: Option<String>,
    /// Sizes of its frames, bytes with FCS; the trial's where there are none.
    #[serde(default)]
    pub size: Option<Size>,
    /// Whether its frames are told apart.
    #[serde(default)]
    pub signature: SignatureMode,
    /// Whose times its frames have, beside the tester's own.
    #[serde(default)]
    pub timestamps: Option<Timestamps>,
    /// Seed of everything drawn for it.
    #[serde(default)]
    pub seed: Option<u64>,
    /// Link layer.
    #[serde(default)]
    pub ethernet: Ethernet,
    /// Tags, outermost first.
    #[serde(default)]
    pub vlan: Vec<Vlan>,
    /// Labels of MPLS, outermost first.
    #[serde(default)]
    pub mpls: Vec<Label>,
    /// A tunnel around its packets.
    #[serde(default)]
    pub tunnel: Option<Tunnel>,
    /// IPv4 header.
    #[serde(default)]
    pub ipv4: Option<Ip<Ipv4Addr>>,
    /// IPv6 header.
    #[serde(default)]
    pub ipv6: Option<Ip<Ipv6Addr>>,
    /// UDP header.
    #[serde(default)]
    pub udp: Option<Ports>,
    /// TCP header.
    #[serde(default)]
    pub tcp: Option<Ports>,
    /// ICMP or ICMPv6 echo request.
    #[serde(default)]
    pub icmp: Option<Echo>,
    /// What its payload begins with; the rest counts up.
    #[serde(default)]
    pub payload: Payload,
    /// Packets that it sends as they are, in place of headers and sizes.
    #[serde(default)]
    pub pcap: Option<Replay>,
    /// Addresses and ports that belong together; put into the headers when the profile is read.
    #[serde(default)]
    pub tuples: Option<Tuples>,
}

/// Bursts. The stream's rate is that within one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// Frames of a burst.
    pub frames: u64,
    /// Bursts in all. Without it there is one, or with a `gap` as many as the trial has time for.
    #[serde(default)]
    pub count: Option<u64>,
    /// Time from the end of a burst, one frame's time after its last frame, to the next one.
    #[serde(default)]
    pub gap: Option<Span>,
}

impl Burst {
    /// Bursts in all; `None` for as many as there is time for.
    pub fn bursts(&self) -> Option<u64> {
        self.count.or(if self.gap.is_some() { None } else { Some(1) })
    }
}

fn rate<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Rate>, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.parse() {
        Ok(Rate::Max) => Err(serde::de::Error::custom("a stream's own rate cannot be max")),
        Ok(rate) => Ok(Some(rate)),
        Err(error) => Err(serde::de::Error::custom(error)),
    }
}

/// Link-layer addresses.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ethernet {
    /// The port's own where there is none.
    #[serde(default)]
    pub src: Option<Field<MacAddr>>,
    /// The gateway's where there is none.
    #[serde(default)]
    pub dst: Option<Field<MacAddr>>,
}

/// A VLAN tag.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vlan {
    /// VLAN number.
    pub id: Field<u16>,
    /// Priority.
    #[serde(default)]
    pub priority: u8,
    /// Service tag (0x88a8) rather than customer tag (0x8100).
    #[serde(default)]
    pub service: bool,
}

/// An IP header.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, bound = "T: Value")]
pub struct Ip<T> {
    /// Source.
    #[serde(default)]
    pub src: Option<Field<T>>,
    /// Destination.
    #[serde(default)]
    pub dst: Option<Field<T>>,
    /// TTL or hop limit.
    #[serde(default = "ttl")]
    pub ttl: u8,
    /// Differentiated services code point.
    #[serde(default)]
    pub dscp: u8,
}

fn ttl() -> u8 {
    64
}

/// A UDP or TCP header.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ports {
    /// Source port; drawn from 1024-65535 where there is none (RFC 4814, section 4.5).
    #[serde(default)]
    pub src: Option<Field<u16>>,
    /// Destination port; drawn from 1-49151 where there is none.
    #[serde(default)]
    pub dst: Option<Field<u16>>,
    /// Flags of TCP; `ack` where nothing is said.
    #[serde(default)]
    pub flags: Option<Vec<Flag>>,
}

/// A flag of TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "their names in RFC 9293")]
pub enum Flag {
    Fin,
    Syn,
    Rst,
    Psh,
    Ack,
    Urg,
}

impl Ports {
    /// The flags as TCP has them.
    pub fn tcp_flags(&self) -> TcpFlags {
        let bit = |flag: &Flag| match flag {
            Flag::Fin => TcpFlags::FIN,
            Flag::Syn => TcpFlags::SYN,
            Flag::Rst => TcpFlags::RST,
            Flag::Psh => TcpFlags::PSH,
            Flag::Ack => TcpFlags::ACK,
            Flag::Urg => TcpFlags::URG,
        };
        self.flags.as_ref().map_or(TcpFlags::ACK, |flags| flags.iter().map(bit).fold(TcpFlags::default(), |a, b| a | b))
    }
}

/// An echo request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Echo {
    /// Identifier.
    #[serde(default)]
    pub id: u16,
}

impl Stream {
    /// A stream of a name that says nothing else.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            from: Side::Left,
            share: None,
            rate: None,
            departures: Departures::Constant,
            burst: None,
            start: None,
            after: None,
            size: None,
            signature: SignatureMode::Full,
            timestamps: None,
            seed: None,
            ethernet: Ethernet::default(),
            vlan: Vec::new(),
            mpls: Vec::new(),
            tunnel: None,
            ipv4: None,
            ipv6: None,
            udp: None,
            tcp: None,
            icmp: None,
            payload: Payload::default(),
            pcap: None,
            tuples: None,
        }
    }

    /// Which layer-4 header it has.
    pub fn l4(&self) -> L4 {
        if self.udp.is_some() {
            L4::Udp
        } else if self.tcp.is_some() {
            L4::Tcp
        } else if self.icmp.is_some() {
            L4::Icmp
        } else {
            L4::None
        }
    }

    /// Bytes of its headers.
    pub fn headers(&self) -> usize {
        let l3 = if self.ipv4.is_some() {
            20
        } else if self.ipv6.is_some() {
            40
        } else {
            0
        };
        let l4 = match self.l4() {
            L4::Udp | L4::Icmp => 8,
            L4::Tcp => 20,
            L4::None => 0,
        };
        14 + 4 * self.vlan.len() + self.around() + l3 + l4
    }

    /// Smallest frame with FCS that holds headers, the payload that is given and, where it has one, the signature.
    pub fn smallest(&self) -> u16 {
        let filled = self.headers() + self.payload.0.len();
        match self.signature {
            SignatureMode::Full => Self::smallest_for(filled),
            SignatureMode::Auto | SignatureMode::None => (filled + 4).min(usize::from(u16::MAX)).max(size::MIN.into()) as u16,
        }
    }

    /// How many of its frames have a signature.
    pub fn signing(&self) -> Signing {
        match (self.signature, &self.pcap) {
            (SignatureMode::None, _) => Signing::None,
            (SignatureMode::Auto, Some(replay)) => replay.signing(),
            _ => Signing::Full,
        }
    }

    /// Smallest frame with FCS that holds so many bytes of headers and a signature.
    pub(crate) fn smallest_for(headers: usize) -> u16 {
        (headers + crate::signature::LEN + 4).min(usize::from(u16::MAX)).max(size::MIN.into()) as u16
    }

    /// The same stream the other way.
    #[must_use]
    pub fn mirrored(&self) -> Self {
        let mut other = self.clone();
        other.from = self.from.other();
        let swap = |ports: &mut Ports| std::mem::swap(&mut ports.src, &mut ports.dst);
        if let Some(ip) = &mut other.ipv4 {
            std::mem::swap(&mut ip.src, &mut ip.dst);
        }
        if let Some(ip) = &mut other.ipv6 {
            std::mem::swap(&mut ip.src, &mut ip.dst);
        }
        [&mut other.udp, &mut other.tcp].into_iter().flatten().for_each(swap);
        std::mem::swap(&mut other.ethernet.src, &mut other.ethernet.dst);
        other.mirror_around();
        other
    }
}

/// Layer 4 of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "protocol names")]
pub enum L4 {
    Udp,
    Tcp,
    Icmp,
    None,
}

impl Profile {
    /// Reads a file: JSON where its name ends so, else YAML.
    ///
    /// # Errors
    /// It cannot be read, or says something that cannot be.
    pub fn load(file: &Path) -> Result<Self, ProfileError> {
        let (name, mut document) = document(file)?;
        let folder = file.parent().unwrap_or(Path::new(""));
        zipf::resolve(&mut document, folder);
        Self::of_document(&name, document)
    }

    /// Reads YAML; `file` is what messages call it.
    ///
    /// # Errors
    /// It is none, or says something that cannot be.
    pub fn of_yaml(file: &str, text: &str) -> Result<Self, ProfileError> {
        Self::of_document(file, yaml(file, text)?)
    }

    /// Reads JSON; `file` is what messages call it.
    ///
    /// # Errors
    /// It is none, or says something that cannot be.
    pub fn of_json(file: &str, text: &str) -> Result<Self, ProfileError> {
        Self::of_document(file, json(file, text)?)
    }

    /// Takes a document that has been read.
    ///
    /// # Errors
    /// It says something that cannot be.
    pub fn of_document(file: &str, document: serde_json::Value) -> Result<Self, ProfileError> {
        let content = |path: String, error: String| ProfileError::Content { file: file.to_owned(), path, error };
        let mut profile: Self = serde_path_to_error::deserialize(document).map_err(|e| {
            let path = if e.path().iter().next().is_none() { "top".to_owned() } else { e.path().to_string() };
            content(path, e.inner().to_string())
        })?;
        for (i, stream) in profile.streams.iter_mut().enumerate() {
            stream.spread_tuples().map_err(|error| content(format!("streams[{i}].tuples"), error))?;
        }
        profile.check().map_err(|(path, error)| content(path, error))?;
        Ok(profile)
    }

    fn check(&self) -> Result<(), (String, String)> {
        let wrong = |path: &str, error: String| Err((path.to_owned(), error));
        if let Some(schema) = self.schema.as_deref().filter(|s| *s != SCHEMA) {
            return wrong("schema", format!("`{schema}' is not known here; this program reads {SCHEMA}"));
        }
        if self.streams.is_empty() || self.streams.len() > STREAMS {
            return wrong("streams", format!("there are {}; 1 to {STREAMS} are possible", self.streams.len()));
        }
        for (i, stream) in self.streams.iter().enumerate() {
            stream.check().map_err(|(path, error)| (format!("streams[{i}]{path}"), error))?;
            if self.streams[..i].iter().any(|s| s.name == stream.name) {
                return wrong(&format!("streams[{i}].name"), format!("`{}' is the name of an earlier stream", stream.name));
            }
            if let Some(name) = &stream.after {
                let before = self.streams[..i].iter().find(|s| s.name == *name && s.from == stream.from);
                let path = format!("streams[{i}].after");
                match before {
                    None => return wrong(&path, format!("`{name}' is no earlier stream from the same side")),
                    Some(s) if s.burst.is_none_or(|b| b.bursts().is_none()) => {
                        return wrong(&path, format!("stream `{name}' has no end: give it a burst, and that a count"));
                    }
                    Some(_) => {}
                }
            }
        }
        if self.bidirectional && self.streams.iter().any(|s| s.from == Side::Right) {
            return wrong(
                "bidirectional",
                "streams from the right are there already: leave it out, or give streams from the left only".into(),
            );
        }
        if self.bidirectional && self.streams.iter().any(|s| s.pcap.is_some()) {
            return wrong(
                "bidirectional",
                "addresses in packets of a capture cannot be exchanged: give the right a stream of its own".into(),
            );
        }
        for side in [Side::Left, Side::Right] {
            let counted = |s: &&Stream| s.from == side && s.signing() != Signing::Full;
            let all = self.streams.iter().filter(|s| s.from == side).count();
            if self.streams.iter().filter(counted).count() > 0 && all > 1 {
                let error =
                    "a stream with frames that are counted only must be alone in its direction: they cannot be told from others";
                return wrong("streams", error.to_owned());
            }
        }
        Ok(())
    }

    /// The streams of a side, mirrored ones included.
    pub fn streams_from(&self, side: Side) -> Vec<Stream> {
        let own = self.streams.iter().filter(|s| s.from == side).cloned();
        let mirrored = self.streams.iter().filter(|s| self.bidirectional && s.from != side).map(Stream::mirrored);
        own.chain(mirrored).collect()
    }
}

impl Stream {
    fn check(&self) -> Result<(), (String, String)> {
        let wrong = |path: &str, error: String| Err((path.to_owned(), error));
        if self.name.is_empty() || self.name.len() > 64 {
            return wrong(".name", "a name has 1 to 64 bytes".to_owned());
        }
        if self.ipv4.is_some() && self.ipv6.is_some() {
            return wrong("", "it has both ipv4 and ipv6: make two streams of it".to_owned());
        }
        if let Some(replay) = &self.pcap {
            self.check_replay(replay)?;
        } else if self.signature == SignatureMode::Auto {
            return wrong(".signature", "`auto' is for packets of a capture; frames that are made have full or none".to_owned());
        }
        if self.timestamps.is_some() {
            let single = self.rate.is_some() && self.burst.is_none() && self.departures == Departures::Constant;
            if !single || self.signature != SignatureMode::Full || self.pcap.is_some() {
                return wrong(
                    ".timestamps",
                    "frames with timestamps leave one at a time: give the stream a `rate', such as 1000pps, and no burst, no \
                     departures, no capture, and leave signature as it is"
                        .to_owned(),
                );
            }
        }
        let l4 = [self.udp.is_some(), self.tcp.is_some(), self.icmp.is_some()].into_iter().filter(|p| *p).count();
        if l4 > 1 {
            return wrong("", "it has more than one of udp, tcp and icmp".to_owned());
        }
        if l4 > 0 && self.ipv4.is_none() && self.ipv6.is_none() {
            return wrong("", "udp, tcp and icmp need ipv4 or ipv6: add `ipv4: {}' for the usual addresses".to_owned());
        }
        if self.share.is_some() && self.rate.is_some() {
            return wrong(".share", "a stream with a rate of its own has no share of the trial's".to_owned());
        }
        if self.share.is_some_and(|s| !(s.is_finite() && s > 0.0)) {
            return wrong(".share", "a share is a number above 0".to_owned());
        }
        if let Some(burst) = &self.burst {
            if burst.frames == 0 || burst.count == Some(0) {
                return wrong(".burst", "there is at least one burst of at least one frame".to_owned());
            }
            if burst.count.is_some_and(|n| n > 1) && burst.gap.is_none() {
                return wrong(".burst", "several bursts need a `gap' between them, such as 1ms".to_owned());
            }
            if self.departures != Departures::Constant {
                return wrong(".departures", "frames of a burst leave evenly".to_owned());
            }
        }
        if self.udp.as_ref().is_some_and(|udp| udp.flags.is_some()) {
            return wrong(".udp.flags", "UDP has no flags".to_owned());
        }
        self.check_around()?;
        if self.vlan.len() > 2 {
            return wrong(".vlan", "a frame has at most two tags".to_owned());
        }
        for (i, tag) in self.vlan.iter().enumerate() {
            let ids: Vec<u16> = match &tag.id {
                Field::List(ids) | Field::Pick { values: ids, .. } => ids.clone(),
                Field::Fixed(id) => vec![*id],
                Field::Increment { first, last, .. } | Field::Decrement { first, last, .. } | Field::Random { first, last, .. } => {
                    vec![*first, *last]
                }
                // Of addresses only.
                Field::Zipf { .. } | Field::Supplied(_) => Vec::new(),
            };
            if ids.iter().any(|id| *id > 4094) {
                return wrong(&format!(".vlan[{i}].id"), "a VLAN number is 0 to 4094".to_owned());
            }
            if tag.priority > 7 {
                return wrong(&format!(".vlan[{i}].priority"), "a priority is 0 to 7".to_owned());
            }
        }
        for (at, dscp) in [(".ipv4.dscp", self.ipv4.as_ref().map(|h| h.dscp)), (".ipv6.dscp", self.ipv6.as_ref().map(|h| h.dscp))] {
            if dscp.is_some_and(|d| d > 63) {
                return wrong(at, "a code point is 0 to 63".to_owned());
            }
        }
        if let Some(size) = &self.size {
            self.check_size(size).map_err(|error| (".size".to_owned(), error))?;
        }
        Ok(())
    }

    /// Whether a stream of captured packets says nothing that these say.
    fn check_replay(&self, replay: &Replay) -> Result<(), (String, String)> {
        let wrong = |path: &str, error: &str| Err((path.to_owned(), error.to_owned()));
        if let Some((n, why)) = replay.without_room().filter(|_| self.signature == SignatureMode::Full) {
            let remedy = "`signature: auto' has such packets counted only, `none' all";
            return wrong(".pcap", &format!("packet {n} of the capture has no room for a signature: {why}; {remedy}"));
        }
        let headers = [self.ipv4.is_some(), self.ipv6.is_some(), self.udp.is_some(), self.tcp.is_some(), self.icmp.is_some()];
        let link = [self.ethernet.src.is_some(), self.ethernet.dst.is_some(), !self.vlan.is_empty(), self.size.is_some()];
        let more = [!self.mpls.is_empty(), self.tunnel.is_some(), !self.payload.0.is_empty()];
        if headers.iter().chain(&link).chain(&more).any(|given| *given) {
            return wrong(".pcap", "a capture has sizes and headers of its own: leave out all other keys that say some");
        }
        Ok(())
    }

    /// Whether frames of these sizes hold what the stream needs.
    ///
    /// # Errors
    /// What would be large enough.
    pub fn check_size(&self, size: &Size) -> Result<(), String> {
        let (smallest, least) = (self.smallest(), size.all().first().copied().unwrap_or(0));
        if least >= smallest {
            return Ok(());
        }
        let bare = Self { signature: SignatureMode::None, ..self.clone() }.smallest();
        let remedy = if self.signature == SignatureMode::Full && least >= bare {
            ", or `signature: none' to have them counted only"
        } else {
            ""
        };
        let what = if self.signature == SignatureMode::Full { "headers and signature" } else { "headers" };
        Err(format!("frames of {least} bytes have no room for {what}: {smallest} bytes or more{remedy}"))
    }
}

/// Reads a file, JSON where its name ends so, else YAML; what messages call it, and what it holds.
///
/// # Errors
/// It cannot be read, or is neither.
pub(crate) fn document(file: &Path) -> Result<(String, serde_json::Value), ProfileError> {
    let name = file.display().to_string();
    let text =
        std::fs::read_to_string(file).map_err(|error| ProfileError::File { file: name.clone(), error: error.to_string() })?;
    let document = if file.extension().is_some_and(|e| e == "json") { json(&name, &text) } else { yaml(&name, &text) }?;
    Ok((name, document))
}

fn yaml(file: &str, text: &str) -> Result<serde_json::Value, ProfileError> {
    serde_saphyr::from_str(text).map_err(|e| syntax(file, &e.to_string()))
}

fn json(file: &str, text: &str) -> Result<serde_json::Value, ProfileError> {
    serde_json::from_str(text).map_err(|e| syntax(file, &e.to_string()))
}

fn syntax(file: &str, error: &str) -> ProfileError {
    ProfileError::Syntax { file: file.to_owned(), error: one_line(error) }
}

/// A text as a part of a line: keys of a document may have any characters.
pub(crate) fn on_one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// The first line of a message that may come with a picture of the place.
pub(crate) fn one_line(text: &str) -> String {
    text.lines().map(str::trim).find(|l| !l.is_empty()).unwrap_or("unreadable").to_owned()
}
