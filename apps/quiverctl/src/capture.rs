//! `quiverctl capture`: packets as they pass the router, as a pcapng file or stream, such as for `wireshark -k -i -`.

use crate::{Failure, connection::Connection, filter};
use clap::Parser;
use quiver_command::{
    grammar::quote,
    session::frames::{Call, Status},
};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufWriter, IsTerminal, Write},
    path::PathBuf,
};

/// Captures packets of the router, until Ctrl-C or `--count`.
#[derive(Debug, Parser)]
#[command(name = "quiverctl capture", no_binary_name = true, disable_help_subcommand = true)]
pub struct Request {
    /// Interface of the router; all unless given
    #[arg(short, long, value_name = "INTERFACE")]
    pub interface: Option<String>,
    /// Where packets are copied; `rx`, `tx` and `drop`, several with commas; `rx,tx` unless this or --node is given
    #[arg(long, value_name = "POINTS", value_delimiter = ',', value_parser = ["rx", "tx", "drop"])]
    pub at: Vec<String>,
    /// Node of the graph in front of which packets are copied; several with commas
    #[arg(short, long, value_name = "NODES", value_delimiter = ',')]
    pub node: Vec<String>,
    /// Packets at most
    #[arg(short, long, value_name = "N")]
    pub count: Option<u64>,
    /// Bytes of each packet at most
    #[arg(short = 'S', long, value_name = "BYTES")]
    pub snaplen: Option<u32>,
    /// File to write; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub write: PathBuf,
    /// Filter expression, as of tcpdump
    #[arg(value_name = "FILTER", trailing_var_arg = true)]
    pub filter: Vec<String>,
}

impl Request {
    /// The command of the router.
    fn command(&self) -> Result<String, Failure> {
        let mut command = "pcap stream".to_owned();
        if self.at.is_empty() && self.node.is_empty() {
            command += " rx tx";
        }
        self.at.iter().for_each(|point| command += &format!(" {point}"));
        self.node.iter().for_each(|node| command += &format!(" node {}", quote(node)));
        if let Some(count) = self.count {
            command += &format!(" max {count}");
        }
        if let Some(bytes) = self.snaplen {
            command += &format!(" max-bytes-per-pkt {}", bytes.clamp(1, 9216));
        }
        if let Some(interface) = &self.interface {
            command += &format!(" intfc {}", quote(interface));
        }
        let expression = self.filter.join(" ");
        if !expression.trim().is_empty() {
            command += &format!(" bpf {}", quote(&filter::compile(&expression)?));
        }
        Ok(command)
    }
}

/// Runs a capture.
///
/// # Errors
/// The router refuses it, or what is captured cannot be written.
pub fn run(connection: &mut Connection, request: &Request) -> Result<(), Failure> {
    if request.write.as_os_str() == "-" {
        let stdout = io::stdout();
        if stdout.is_terminal() {
            let text =
                "capture: a terminal cannot show packets; pipe them, as `quiverctl capture | wireshark -k -i -', or give `-w FILE'";
            return Err(Failure::Command(text.to_owned()));
        }
        return stream(connection, request, stdout.lock());
    }
    let file = File::create(&request.write);
    let file = file.map_err(|error| Failure::Command(format!("capture: cannot write {}: {error}", request.write.display())))?;
    stream(connection, request, file)
}

fn stream(connection: &mut Connection, request: &Request, out: impl Write) -> Result<(), Failure> {
    let mut writer = Pcapng::new(BufWriter::new(out))?;
    let mut written = Ok(());
    let call = Call { json: false, ..Call::command(&request.command()?) };
    let reply = connection.call(call, |text| {
        if written.is_ok() {
            written = text.lines().try_for_each(|line| writer.line(line)).and_then(|()| writer.out.flush());
        }
        written.is_ok()
    })?;
    match (written, reply.status) {
        // The reader has seen enough.
        (Err(error), _) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
        (Err(error), _) => return Err(error.into()),
        (_, Status::Error) => return Err(Failure::Command(reply.text)),
        _ => {}
    }
    eprint!("{}", reply.text);
    Ok(())
}

/// A packet, as `pcap stream` prints it.
#[derive(Debug, PartialEq, Eq)]
struct Packet<'a> {
    time: u64,
    point: &'a str,
    interface: u32,
    name: &'a str,
    len: u32,
    bytes: Vec<u8>,
}

impl<'a> Packet<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split(' ');
        let packet = Self {
            time: words.next()?.parse().ok()?,
            point: words.next()?,
            interface: words.next()?.parse().ok()?,
            name: words.next()?,
            len: words.next()?.parse().ok()?,
            bytes: bytes_of(words.next()?)?,
        };
        words.next().is_none().then_some(packet)
    }
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |pair: &[u8; 2]| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8);
    rest.is_empty().then(|| pairs.iter().map(byte).collect())?
}

/// Writes pcapng (draft-ietf-opsawg-pcapng): a section, an interface for each of the router's, packets with nanoseconds and direction.
struct Pcapng<W: Write> {
    out: W,
    interfaces: BTreeMap<u32, u32>,
}

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const ORDER: u32 = 0x1a2b_3c4d;
const ETHERNET: u16 = 1;
/// Options of blocks.
const END: u16 = 0;
const IF_NAME: u16 = 2;
const IF_RESOLUTION: u16 = 9;
const FLAGS: u16 = 2;
const COMMENT: u16 = 1;
/// Ten to the power of minus nine.
const NANOSECONDS: u8 = 9;

impl<W: Write> Pcapng<W> {
    fn new(out: W) -> io::Result<Self> {
        let mut new = Self { out, interfaces: BTreeMap::new() };
        let mut body = ORDER.to_le_bytes().to_vec();
        // Version 1.0; the length of the section is not known.
        body.extend([1, 0, 0, 0]);
        body.extend(u64::MAX.to_le_bytes());
        new.block(SECTION, &body)?;
        new.out.flush()?;
        Ok(new)
    }

    fn block(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        let len = (body.len() + 12) as u32;
        self.out.write_all(&kind.to_le_bytes())?;
        self.out.write_all(&len.to_le_bytes())?;
        self.out.write_all(body)?;
        self.out.write_all(&len.to_le_bytes())
    }

    fn interface(&mut self, index: u32, name: &str) -> io::Result<u32> {
        if let Some(known) = self.interfaces.get(&index) {
            return Ok(*known);
        }
        let id = self.interfaces.len() as u32;
        let mut body = ETHERNET.to_le_bytes().to_vec();
        body.extend([0; 6]);
        option(&mut body, IF_NAME, name.as_bytes());
        option(&mut body, IF_RESOLUTION, &[NANOSECONDS]);
        option(&mut body, END, &[]);
        self.block(INTERFACE, &body)?;
        self.interfaces.insert(index, id);
        Ok(id)
    }

    fn line(&mut self, line: &str) -> io::Result<()> {
        let Some(packet) = Packet::parse(line) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the router printed what is no packet; is it of another version?",
            ));
        };
        let interface = self.interface(packet.interface, packet.name)?;
        let mut body = Vec::with_capacity(packet.bytes.len() + 64);
        for word in [interface, (packet.time >> 32) as u32, packet.time as u32, packet.bytes.len() as u32, packet.len] {
            body.extend(word.to_le_bytes());
        }
        body.extend(&packet.bytes);
        body.resize(body.len().next_multiple_of(4), 0);
        let direction: u32 = match packet.point {
            "rx" => 1,
            "tx" => 2,
            _ => 0,
        };
        option(&mut body, FLAGS, &direction.to_le_bytes());
        match packet.point.strip_prefix('@') {
            Some(node) => option(&mut body, COMMENT, format!("at {node}").as_bytes()),
            None if packet.point == "drop" => option(&mut body, COMMENT, b"dropped"),
            None => {}
        }
        option(&mut body, END, &[]);
        self.block(PACKET, &body)
    }
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_blocks_that_end_as_they_begin() {
        let mut writer = Pcapng::new(Vec::new()).unwrap();
        for line in
            ["5 rx 1 host-a 60 0102ff", "6 tx 2 host-b 3 aabbcc", "7 drop 1 host-a 4 00000000", "8 @ip4-input 1 host-a 1 00"]
        {
            writer.line(line).unwrap();
        }
        let (bytes, mut at, mut kinds) = (writer.out, 0, Vec::new());
        assert!(bytes.windows(12).any(|bytes| bytes == b"at ip4-input"));
        while at < bytes.len() {
            let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            let len = word(at + 4) as usize;
            assert_eq!((word(at + len - 4) as usize, len % 4), (len, 0));
            kinds.push(word(at));
            at += len;
        }
        assert_eq!(kinds, [SECTION, INTERFACE, PACKET, INTERFACE, PACKET, PACKET, PACKET]);
    }

    #[test]
    fn what_is_no_packet_is_refused() {
        for line in
            ["", "5 rx 1 host-a 60", "5 rx 1 host-a 60 012", "5 rx 1 host-a 60 zz", "5 rx 1 host-a 60 01 02", "x rx 1 a 1 01"]
        {
            assert_eq!(Packet::parse(line), None, "{line}");
        }
        assert!(Packet::parse("5 rx 1 host-a 60 0102").is_some_and(|packet| packet.bytes == [1, 2]));
    }

    #[test]
    fn the_request_becomes_a_command() {
        let parse = |words: &[&str]| Request::try_parse_from(words).unwrap();
        assert_eq!(parse(&[]).command().unwrap(), "pcap stream rx tx");
        let all = parse(&["-i", "host a", "--at", "drop", "-c", "5", "-S", "100", "-w", "x"]);
        assert_eq!(all.command().unwrap(), "pcap stream drop max 5 max-bytes-per-pkt 100 intfc \"host a\"");
        assert_eq!(parse(&["--node", "ip4-input,ip4-lookup"]).command().unwrap(), "pcap stream node ip4-input node ip4-lookup");
        assert_eq!(parse(&["--at", "rx", "-n", "ip4-input"]).command().unwrap(), "pcap stream rx node ip4-input");
        assert!(Request::try_parse_from(["--at", "nowhere"]).is_err());
    }
}
