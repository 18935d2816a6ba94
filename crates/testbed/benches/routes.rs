//! How many routes a second one client of the binary API sets while the router forwards.
//!
//! `cargo bench -p quiver-testbed --bench routes [-- ROUTES [IN-FLIGHT [ROUNDS]]]`
//!
//! Starts a router (`QUIVER_BIN`, or the release build) with one worker on processor 1, which sends generated packets through the
//! FIB as fast as it can; the client and the main thread share processor 0. Then one client sends `ip_route_add_del` for that many
//! prefixes of 32 bits from 30.0.0.0 on, with so many requests in flight, and takes them back. Both rates, and what the worker
//! forwarded a second meanwhile and without the client. Needs root for its own namespace.

use std::error::Error;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use quiver_api::defs::{
    Address, AddressFamily, AddressUnion, FibPath, FibPathNh, IpRoute, IpRouteAddDel, IpRouteAddDelReply, Prefix, SockclntCreate,
    SockclntCreateReply,
};
use quiver_api::{Message, MessageInfo, Reader, Wire as _, crc, frame};
use quiver_testbed::{Host, Router};

/// Packets come in on pg0 and leave on pg1, all for 198.51.100.0/24.
const SCENE: &str = "create packet-generator interface pg0
create packet-generator interface pg1
set interface state pg0 up
set interface state pg1 up
set interface ip address pg0 192.0.2.1/24
set interface ip address pg1 203.0.113.1/24
set ip neighbor pg1 203.0.113.2 02:00:00:00:00:02 static
ip route add 198.51.100.0/24 via 203.0.113.2 pg1
packet-generator new { name flood interface pg0 node ip4-input size 46-46 data { UDP: 192.0.2.2 -> 198.51.100.1 - 198.51.100.254 UDP: 1024 -> 1024 incrementing 18 } }";

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo bench` adds a word of its own.
    let mut numbers = std::env::args().skip(1).filter(|word| !word.starts_with('-')).map(|word| word.parse::<u32>());
    let routes = numbers.next().transpose()?.unwrap_or(200_000);
    let window = numbers.next().transpose()?.unwrap_or(512);
    let rounds = numbers.next().transpose()?.unwrap_or(5);
    let host = Host::new("routes")?;
    let folder = std::env::temp_dir().join(format!("quiver-routes-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let socket = folder.join("api.sock");
    let conf = format!("cpu {{ main-core 0 corelist-workers 1 }}\nsocksvr {{ socket-name {} }}", socket.display());
    let router = Router::start(&host, &conf)?;
    router.script(SCENE)?;
    router.cli("packet-generator enable-stream")?;
    let mut client = Client::connect(socket.to_str().ok_or("a name in UTF-8")?)?;
    let alone = forwarded(&router, Duration::from_secs(1), || Ok(()))?;
    println!("forwarded without a client: {alone:.0} packets a second");
    for add in (0..rounds).flat_map(|_| [true, false]) {
        let began = Instant::now();
        let packets = forwarded(&router, Duration::ZERO, || client.set(add, routes, window))?;
        let rate = f64::from(routes) / began.elapsed().as_secs_f64();
        let what = if add { "added" } else { "removed" };
        println!("{what} {routes} routes: {rate:.0} a second; {packets:.0} packets a second forwarded meanwhile");
    }
    drop(client);
    router.stop()?;
    let _ = std::fs::remove_dir_all(&folder);
    Ok(())
}

/// Packets a second that leave on pg1 while `work` is done, and for `least`.
fn forwarded(router: &Router, least: Duration, work: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Result<f64, Box<dyn Error>> {
    let sent = || -> Result<u64, Box<dyn Error>> {
        let interfaces: serde_json::Value = serde_json::from_str(&router.cli_json("show interface pg1")?)?;
        let counters = interfaces["interfaces"][0]["counters"].as_array().into_iter().flatten();
        let sent = counters.filter(|counter| counter[0] == "tx packets").find_map(|counter| counter[1].as_u64());
        sent.ok_or_else(|| format!("no counter in {interfaces}").into())
    };
    let (began, before) = (Instant::now(), sent()?);
    work()?;
    std::thread::sleep(least);
    Ok((sent()? - before) as f64 / began.elapsed().as_secs_f64())
}

struct Client {
    stream: UnixStream,
    index: u32,
    request: u16,
    reply: u16,
}

impl Client {
    fn connect(path: &str) -> Result<Self, Box<dyn Error>> {
        let mut stream = UnixStream::connect(path)?;
        let mut hello = Vec::new();
        frame::push(&mut hello, |out| {
            frame::CREATE.put(out);
            1_u32.put(out);
            SockclntCreate { name: "route_rate".into() }.write(out);
        });
        stream.write_all(&hello)?;
        let message = receive(&mut stream)?;
        let mut reader = Reader::new(&message);
        let (_number, index) = (u16::get(&mut reader)?, u32::get(&mut reader)?);
        u32::get(&mut reader)?;
        let table = SockclntCreateReply::read(&mut reader)?.message_table;
        let number = |info: &MessageInfo| {
            let wanted = format!("{}_{:08x}", info.name, crc(info));
            table.iter().find(|entry| entry.name.as_str() == wanted).map(|entry| entry.index).ok_or(wanted)
        };
        Ok(Self { stream, index, request: number(IpRouteAddDel::INFO)?, reply: number(IpRouteAddDelReply::INFO)? })
    }

    fn set(&mut self, add: bool, routes: u32, window: u32) -> Result<(), Box<dyn Error>> {
        let mut room = [0; 16];
        room[..4].copy_from_slice(&[203, 0, 113, 2]);
        let nh = FibPathNh { address: AddressUnion(room), ..FibPathNh::default() };
        let path = FibPath { sw_if_index: 2, weight: 1, nh, ..FibPath::default() };
        let mut message = IpRouteAddDel { is_add: add, ..IpRouteAddDel::default() };
        message.route = IpRoute { paths: vec![path], ..IpRoute::default() };
        let (mut sent, mut answered) = (0, 0);
        let mut out = Vec::new();
        while answered < routes {
            while sent < routes && sent - answered < window {
                let mut room = [0; 16];
                room[..4].copy_from_slice(&(0x1e00_0000 + sent).to_be_bytes());
                let address = Address { af: AddressFamily::ADDRESS_IP4, un: AddressUnion(room) };
                message.route.prefix = Prefix { address, len: 32 };
                let (request, index) = (self.request, self.index);
                frame::push(&mut out, |out| {
                    request.put(out);
                    index.put(out);
                    sent.put(out);
                    message.write(out);
                });
                sent += 1;
            }
            self.stream.write_all(&out)?;
            out.clear();
            // Half a window of answers, so that the router always has something to do.
            for _ in 0..(window / 2).max(1).min(sent - answered) {
                let reply = receive(&mut self.stream)?;
                let mut reader = Reader::new(&reply);
                let (number, context) = (u16::get(&mut reader)?, u32::get(&mut reader)?);
                let code = IpRouteAddDelReply::read(&mut reader)?.retval;
                if (number, context, code) != (self.reply, answered, 0) {
                    return Err(format!("answer {number} to request {context}, where {answered} is next, with code {code}").into());
                }
                answered += 1;
            }
        }
        Ok(())
    }
}

/// The next message.
fn receive(stream: &mut UnixStream) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut header = [0; frame::HEADER];
    stream.read_exact(&mut header)?;
    let mut message = vec![0; u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize];
    stream.read_exact(&mut message)?;
    Ok(message)
}
