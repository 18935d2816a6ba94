//! How many routes a second one client of the binary API can set: `route_rate API-SOCKET [ROUTES [IN-FLIGHT]]`.
//!
//! Sends `ip_route_add_del` for that many prefixes of 32 bits from 30.0.0.0 on, all by a path that drops, with so many requests
//! in flight, then takes them back; prints both rates. Any router that speaks the API will do.

use std::error::Error;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use quiver_api::defs::{
    Address, AddressFamily, AddressUnion, FibPath, FibPathType, IpRoute, IpRouteAddDel, IpRouteAddDelReply, Prefix, SockclntCreate,
    SockclntCreateReply,
};
use quiver_api::{Message, MessageInfo, Reader, Wire as _, crc, frame};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let socket = words.next().ok_or("which socket?")?;
    let routes: u32 = words.next().map_or(Ok(200_000), |word| word.parse())?;
    let window: u32 = words.next().map_or(Ok(512), |word| word.parse())?;
    let mut client = Client::connect(&socket)?;
    for add in [true, false] {
        let began = Instant::now();
        client.set(add, routes, window)?;
        let rate = f64::from(routes) / began.elapsed().as_secs_f64();
        println!("{} {routes} routes: {rate:.0} a second", if add { "added" } else { "removed" });
    }
    Ok(())
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
        let path = FibPath { sw_if_index: u32::MAX, r#type: FibPathType::FIB_API_PATH_TYPE_DROP, weight: 1, ..FibPath::default() };
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
