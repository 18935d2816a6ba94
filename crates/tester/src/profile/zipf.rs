//! Addresses in the prefixes of a route file, popular prefixes more often than others (Zipf's law: the prefix of rank r is drawn in
//! proportion to 1 / r^s).

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::Error;

use super::field::{Field, Value};

/// Most prefixes: twice the Internet's table of 2026.
const PREFIXES: usize = 1 << 21;
/// Most bytes of a route file.
const BYTES: u64 = 256 << 20;
/// Largest exponent: beyond it one prefix has it all.
const EXPONENT: f64 = 10.0;

/// Prefixes by popularity.
#[derive(Clone, Debug, PartialEq)]
pub struct Popular {
    /// Addresses with host bits zero, and prefix lengths.
    prefixes: Arc<[(u128, u8)]>,
    /// Bits of an address.
    bits: u8,
    /// The law's s.
    exponent: f64,
}

impl Popular {
    /// The prefix of a rank from 0: its address and its length. There is at least one.
    pub fn prefix(&self, rank: usize) -> (u128, u8) {
        self.prefixes[rank]
    }

    /// Number of prefixes.
    pub fn count(&self) -> usize {
        self.prefixes.len()
    }

    /// Bits of the addresses in the prefix of a rank that are the host's.
    pub fn host_bits(&self, rank: usize) -> u8 {
        self.bits - self.prefixes[rank].1
    }

    /// How often prefixes are drawn in relation to one another, by rank.
    pub fn weights(&self) -> impl Iterator<Item = f64> {
        let exponent = self.exponent;
        (1..=self.prefixes.len()).map(move |rank| (rank as f64).powf(-exponent))
    }
}

/// What stands behind `zipf:`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Skew {
    routes: Option<PathBuf>,
    prefixes: Option<Vec<String>>,
    exponent: Option<f64>,
    seed: Option<u64>,
}

impl Skew {
    pub(super) fn build<T: Value, E: Error>(self) -> Result<Field<T>, E> {
        if T::ADDRESS_BITS == 0 {
            return Err(E::custom("zipf is for IP addresses"));
        }
        let exponent = self.exponent.unwrap_or(1.0);
        if !(0.0..=EXPONENT).contains(&exponent) {
            return Err(E::custom(format_args!("`exponent' is a number from 0 to {EXPONENT}")));
        }
        let prefixes = match (self.routes, self.prefixes) {
            (Some(file), None) => read::<T>(&file).map_err(E::custom)?,
            (None, Some(texts)) => texts
                .iter()
                .map(|t| prefix::<T>(t).ok_or_else(|| E::custom(format_args!("{t:?} is no prefix of {}", T::WHAT))))
                .collect::<Result<_, _>>()?,
            _ => return Err(E::custom("give either `routes', a file, or `prefixes', a list")),
        };
        if prefixes.is_empty() || prefixes.len() > PREFIXES {
            return Err(E::custom(format_args!("there are {} prefixes; 1 to {PREFIXES} are possible", prefixes.len())));
        }
        let popular = Popular { prefixes: prefixes.into(), bits: T::ADDRESS_BITS, exponent };
        Ok(Field::Zipf { popular, seed: self.seed })
    }
}

/// A prefix of the family, host bits cleared.
fn prefix<T: Value>(text: &str) -> Option<(u128, u8)> {
    let (address, len) = text.split_once('/')?;
    let (address, len) = (T::parse(address)?.number(), len.parse::<u8>().ok().filter(|len| *len <= T::ADDRESS_BITS)?);
    let host = T::ADDRESS_BITS - len;
    Some((if host == 128 { 0 } else { address >> host << host }, len))
}

/// Reads a route file: in each line the first word that is a prefix counts. Prefixes of the other family are passed over.
fn read<T: Value>(path: &Path) -> Result<Vec<(u128, u8)>, String> {
    let name = path.display();
    let failed = |error: std::io::Error| format!("{name}: {error}");
    // A pipe that nobody writes to would never end.
    if !path.metadata().map_err(failed)?.is_file() {
        return Err(format!("{name} is no file"));
    }
    let mut prefixes = Vec::new();
    for (n, line) in BufReader::new(File::open(path).map_err(failed)?.take(BYTES)).lines().enumerate() {
        let line = line.map_err(failed)?;
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        match line.split_whitespace().find_map(prefix::<T>) {
            Some(prefix) => prefixes.push(prefix),
            None if line.split_whitespace().any(|w| w.parse::<quiver_wire::IpPrefix>().is_ok()) => {}
            None => return Err(format!("{name}, line {}: no prefix", n + 1)),
        }
        if prefixes.len() > PREFIXES {
            return Err(format!("{name} has more than {PREFIXES} prefixes"));
        }
    }
    if prefixes.is_empty() { Err(format!("{name} has no prefix of the family")) } else { Ok(prefixes) }
}

/// Makes paths of route files and captures in a document relative to the document's folder.
pub(super) fn resolve(document: &mut serde_json::Value, folder: &Path) {
    match document {
        serde_json::Value::Object(keys) => {
            for (key, value) in keys {
                if let (serde_json::Value::String(file), "pcap") = (&mut *value, key.as_str()) {
                    *file = folder.join(&*file).to_string_lossy().into_owned();
                    continue;
                }
                match value.get_mut("routes") {
                    Some(serde_json::Value::String(file)) if key == "zipf" => {
                        *file = folder.join(&*file).to_string_lossy().into_owned();
                    }
                    _ => resolve(value, folder),
                }
            }
        }
        serde_json::Value::Array(values) => values.iter_mut().for_each(|value| resolve(value, folder)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;
    use std::net::Ipv4Addr;

    #[test]
    fn prefixes_lose_their_host_bits_and_have_lengths_of_the_family() {
        assert_eq!(prefix::<Ipv4Addr>("10.1.2.3/8"), Some((0x0a00_0000, 8)));
        assert_eq!(prefix::<Ipv4Addr>("0.0.0.0/0"), Some((0, 0)));
        assert_eq!(prefix::<Ipv4Addr>("10.1.2.3/32"), Some((0x0a01_0203, 32)));
        assert_eq!(prefix::<std::net::Ipv6Addr>("::1/0"), Some((0, 0)));
        for text in ["10.0.0.0", "10.0.0.0/33", "10.0.0/8", "2001:db8::/32", "10.0.0.0/-1", "/8"] {
            assert_eq!(prefix::<Ipv4Addr>(text), None, "{text}");
        }
    }

    #[test]
    fn a_route_file_lies_beside_the_profile_and_may_hold_commands_and_both_families() {
        let folder = std::env::temp_dir().join(format!("quiver-zipf-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let profile = folder.join("p.yaml");
        let zipf = "name: p\nstreams:\n- { name: s, ipv4: { dst: { zipf: { routes: routes.txt, exponent: 1.2 } } }, udp: {} }\n";
        std::fs::write(&profile, zipf).unwrap();
        assert!(Profile::load(&profile).unwrap_err().to_string().contains("routes.txt"));
        std::fs::write(folder.join("routes.txt"), "# ours\n10.0.0.0/8\nip route add 10.1.0.0/16 via 192.0.2.1\n2001:db8::/32\n\n")
            .unwrap();
        let stream = Profile::load(&profile).unwrap().streams.remove(0);
        let Some(Field::Zipf { popular, .. }) = stream.ipv4.unwrap().dst else { panic!("zipf") };
        assert_eq!((popular.count(), popular.prefix(1), popular.host_bits(1)), (2, (0x0a01_0000, 16), 16));
        std::fs::write(folder.join("routes.txt"), "10.0.0.0/8\nnone\n").unwrap();
        assert!(Profile::load(&profile).unwrap_err().to_string().ends_with("routes.txt, line 2: no prefix"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
