//! What connections there are, and what is said over them, as YAML or JSON. `apps/quiver-tester/README.md` documents every key.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use crate::profile::{ProfileError, document, on_one_line};
use crate::stateful::connections::{AddressRange, PortRange};
use crate::units::Span;

/// The schema that this program reads.
pub const SCHEMA: &str = "quiver-tcp/1";
/// Most kinds of connections.
const TEMPLATES: usize = 64;
/// Longest message, bytes.
const LONGEST: u64 = 1 << 30;
/// Most requests of a connection.
const EXCHANGES: u32 = 1 << 20;
/// What stands behind a message's text: numbers that count up and begin again after a prime number of them, so that no part of a
/// message looks like another one a power of two away.
const CYCLE: usize = 251;

/// How senders adapt to losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Congestion {
    /// As RFC 9438 says, and Linux does.
    #[default]
    Cubic,
    /// As RFC 5681 says.
    Reno,
    /// Not at all: as much as the other end has room for.
    None,
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
    /// Addresses of those who open connections.
    #[serde(deserialize_with = "crate::stateful::request::parsed")]
    pub clients: AddressRange,
    /// Their ports.
    #[serde(default = "client_ports", deserialize_with = "crate::stateful::request::parsed")]
    pub client_ports: PortRange,
    /// Addresses of those who answer.
    #[serde(deserialize_with = "crate::stateful::request::parsed")]
    pub servers: AddressRange,
    /// Bytes that each end has room for before they are read, and before they are acknowledged.
    #[serde(default = "window")]
    pub window: u32,
    /// How senders adapt to losses.
    #[serde(default)]
    pub congestion: Congestion,
    /// Largest IP packet, bytes.
    #[serde(default = "mtu")]
    pub mtu: u16,
    /// Kinds of connections.
    pub connections: Vec<Template>,
}

/// A kind of connections: a server's port, and what is said.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// Its name.
    pub name: String,
    /// Part of the connections, in relation to other kinds.
    #[serde(default = "share")]
    pub share: f64,
    /// Port of the servers.
    pub port: u16,
    /// What a client says.
    pub request: Message,
    /// What a server answers.
    pub response: Message,
    /// How often that happens on a connection.
    #[serde(default = "exchanges")]
    pub exchanges: u32,
    /// How long a client waits after a response before it says something again.
    #[serde(default = "no_time")]
    pub think: Span,
}

fn client_ports() -> PortRange {
    PortRange { first: 1024, last: 65_535 }
}

fn window() -> u32 {
    65_535
}

fn mtu() -> u16 {
    1500
}

fn share() -> f64 {
    1.0
}

fn exchanges() -> u32 {
    1
}

fn no_time() -> Span {
    Span(0)
}

/// A message: a text, and bytes that count up behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    text: Arc<[u8]>,
    length: u64,
}

/// A message as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    text: String,
    #[serde(default)]
    bytes: Option<u64>,
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wrong = serde::de::Error::custom;
        let value = serde_json::Value::deserialize(deserializer)?;
        let written = match value.as_u64() {
            Some(bytes) => Written { text: String::new(), bytes: Some(bytes) },
            None if value.is_object() => serde_json::from_value(value).map_err(|e| wrong(e.to_string()))?,
            None => return Err(wrong("a message is a number of bytes, or { text: …, bytes: … }".to_owned())),
        };
        Self::new(written.text.as_bytes(), written.bytes).map_err(wrong)
    }
}

impl Message {
    /// A text, followed by as many bytes as make `bytes` of it; nothing where there are none.
    ///
    /// # Errors
    /// It would be empty, shorter than its text, or too long.
    pub fn new(text: &[u8], bytes: Option<u64>) -> Result<Self, String> {
        let length = bytes.unwrap_or(text.len() as u64);
        if length < text.len() as u64 {
            return Err(format!("its text alone has {} bytes, and it is to have {length}", text.len()));
        }
        if !(1..=LONGEST).contains(&length) {
            return Err(format!("a message has 1 to {LONGEST} bytes, not {length}"));
        }
        Ok(Self { text: text.into(), length })
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Never: a message has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The bytes from `at` on, as many as there are of them.
    pub fn fill(&self, at: u64, area: &mut [u8]) -> usize {
        let n = area.len().min(usize::try_from(self.length.saturating_sub(at)).unwrap_or(usize::MAX));
        let mut done = 0;
        if let Some(rest) = self.text.get(at as usize..).filter(|rest| !rest.is_empty()) {
            done = rest.len().min(n);
            area[..done].copy_from_slice(&rest[..done]);
        }
        let from = at + done as u64;
        for (i, byte) in area[done..n].iter_mut().enumerate() {
            *byte = ((from + i as u64) % CYCLE as u64) as u8;
        }
        n
    }

    /// Whether these are its bytes from `at` on.
    pub fn has(&self, at: u64, bytes: &[u8]) -> bool {
        let mut wanted = [0; 2048];
        let mut at = at;
        bytes.chunks(wanted.len()).all(|part| {
            let n = self.fill(at, &mut wanted[..part.len()]);
            at += part.len() as u64;
            n == part.len() && wanted[..n] == *part
        })
    }
}

impl Profile {
    /// Reads a file: JSON where its name ends so, else YAML.
    ///
    /// # Errors
    /// It cannot be read, or says something that cannot be.
    pub fn load(file: &Path) -> Result<Self, ProfileError> {
        let (name, document) = document(file)?;
        Self::of_document(&name, document)
    }

    /// Takes a document that has been read; `file` is what messages call it.
    ///
    /// # Errors
    /// It says something that cannot be.
    pub fn of_document(file: &str, document: serde_json::Value) -> Result<Self, ProfileError> {
        let content = |path: String, error: String| ProfileError::Content { file: file.to_owned(), path, error };
        let profile: Self = serde_path_to_error::deserialize(document).map_err(|e| {
            let path = if e.path().iter().next().is_none() { "top".to_owned() } else { e.path().to_string() };
            content(path, on_one_line(&e.inner().to_string()))
        })?;
        profile.check().map_err(|(path, error)| content(path, error))?;
        Ok(profile)
    }

    /// Whether its packets are IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.clients.first().is_ipv4()
    }

    /// The kind of connections to a server's port.
    pub fn of_port(&self, port: u16) -> Option<usize> {
        self.connections.iter().position(|t| t.port == port)
    }

    fn check(&self) -> Result<(), (String, String)> {
        let wrong = |path: &str, error: String| Err((path.to_owned(), error));
        if let Some(schema) = self.schema.as_ref().filter(|s| *s != SCHEMA) {
            return wrong("schema", format!("`{schema}' is not {SCHEMA}"));
        }
        if self.is_ipv4() != self.servers.first().is_ipv4() {
            return wrong("servers", "clients and servers are of different families: give both as clients write them".to_owned());
        }
        if self.client_ports.first == 0 {
            return wrong("client_ports", "ports begin with 1".to_owned());
        }
        let least = if self.is_ipv4() { 576 } else { 1280 };
        if !(least..=9000).contains(&self.mtu) {
            return wrong("mtu", format!("{} is not from {least} to 9000", self.mtu));
        }
        if !(1024..=1 << 24).contains(&self.window) {
            return wrong("window", format!("{} is not from 1024 to {}", self.window, 1 << 24));
        }
        if self.connections.is_empty() || self.connections.len() > TEMPLATES {
            return wrong("connections", format!("there are {}; 1 to {TEMPLATES} are possible", self.connections.len()));
        }
        for (i, template) in self.connections.iter().enumerate() {
            let wrong = |key: &str, error: String| Err((format!("connections[{i}].{key}"), error));
            let before = &self.connections[..i];
            if template.name.is_empty() || template.name.len() > 64 {
                return wrong("name", "a name has 1 to 64 bytes".to_owned());
            }
            if before.iter().any(|t| t.name == template.name) {
                return wrong("name", format!("`{}' is the name of an earlier one", template.name));
            }
            if template.port == 0 || before.iter().any(|t| t.port == template.port) {
                return wrong(
                    "port",
                    format!("{} is 0 or that of an earlier one: servers tell kinds by their ports", template.port),
                );
            }
            if !(template.share > 0.0 && template.share.is_finite()) {
                return wrong("share", format!("{} is not above 0", template.share));
            }
            if !(1..=EXCHANGES).contains(&template.exchanges) {
                return wrong("exchanges", format!("{} is not from 1 to {EXCHANGES}", template.exchanges));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(change: impl FnOnce(&mut serde_json::Value)) -> Result<Profile, ProfileError> {
        let mut document = json!({
            "name": "p", "clients": "10.0.0.1-10.0.0.9", "servers": "10.1.0.1",
            "connections": [{ "name": "a", "port": 80, "request": 10, "response": { "text": "HTTP/1.1 200 OK\r\n\r\n", "bytes": 5000 } }],
        });
        change(&mut document);
        Profile::of_document("p.yaml", document)
    }

    #[test]
    fn what_is_left_out_is_usual() {
        let profile = read(|_| ()).unwrap();
        assert_eq!((profile.mtu, profile.window, profile.congestion), (1500, 65_535, Congestion::Cubic));
        let template = &profile.connections[0];
        assert_eq!((template.exchanges, template.think, template.request.len(), template.response.len()), (1, Span(0), 10, 5000));
        assert_eq!((profile.of_port(80), profile.of_port(81), profile.is_ipv4()), (Some(0), None, true));
    }

    #[test]
    fn messages_are_the_same_in_whatever_parts() {
        let message = Message::new(b"GET / HTTP/1.1\r\n\r\n", Some(3000)).unwrap();
        let mut whole = vec![0; 4000];
        assert_eq!(message.fill(0, &mut whole), 3000);
        whole.truncate(3000);
        assert!(whole.starts_with(b"GET / HTTP/1.1\r\n\r\n") && whole[18..20] == [18, 19] && whole[251] == 0);
        for part in [1, 7, 18, 19, 1000, 2999] {
            let mut at = 0;
            for bytes in whole.chunks(part) {
                assert!(message.has(at, bytes), "{part} {at}");
                let mut other = bytes.to_vec();
                other[bytes.len() / 2] ^= 1;
                assert!(!message.has(at, &other), "{part} {at}");
                at += bytes.len() as u64;
            }
        }
        assert!(!message.has(2999, &[whole[2999], 0]), "one byte too many");
        assert_eq!(message.fill(3000, &mut [0; 4]), 0);
    }

    #[test]
    fn what_cannot_be_is_refused_in_one_line() {
        type Change = fn(&mut serde_json::Value);
        let cases: [(Change, &str); 12] = [
            (|d| d["schema"] = json!("quiver-profile/1"), "schema: `quiver-profile/1' is not quiver-tcp/1"),
            (|d| d["servers"] = json!("2001:db8::1"), "servers: clients and servers are of different families"),
            (|d| d["clients"] = json!("everybody"), "clients: `everybody' is not an address"),
            (|d| d["mtu"] = json!(100), "mtu: 100 is not from 576 to 9000"),
            (|d| d["window"] = json!(1), "window: 1 is not from 1024"),
            (|d| d["congestion"] = json!("bbr"), "congestion: unknown variant `bbr`"),
            (|d| d["connections"] = json!([]), "connections: there are 0"),
            (|d| d["connections"][0]["port"] = json!(0), "connections[0].port: 0 is 0 or that of an earlier one"),
            (|d| d["connections"][0]["request"] = json!(0), "connections[0].request: a message has 1 to"),
            (|d| d["connections"][0]["request"] = json!({ "text": "abc", "bytes": 2 }), "its text alone has 3 bytes"),
            (|d| d["connections"][0]["response"] = json!("all"), "a message is a number of bytes"),
            (|d| d["connections"][0]["exchanges"] = json!(0), "connections[0].exchanges: 0 is not from 1"),
        ];
        for (change, words) in cases {
            let error = read(change).unwrap_err().to_string();
            assert!(error.starts_with("p.yaml: ") && error.contains(words) && !error.contains('\n'), "{error}");
        }
    }
}
