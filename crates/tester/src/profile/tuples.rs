//! Addresses and ports that belong together: a list of tuples, of which each frame has one.

use std::net::IpAddr;

use serde::Deserialize;

use super::field::{Field, Value};
use super::{Ip, Stream};

/// What stands behind `tuples:`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuples {
    /// The tuples.
    pub values: Vec<Tuple>,
    /// Which of them is next.
    #[serde(default)]
    pub order: Order,
    /// Seed of the draw.
    #[serde(default)]
    pub seed: u64,
}

/// Which tuple is next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The next of the list.
    #[default]
    Turns,
    /// Any, all equally often.
    Random,
}

/// Addresses and ports of a frame. What one tuple says all must say.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuple {
    /// Source address.
    pub src: Option<IpAddr>,
    /// Destination address.
    pub dst: Option<IpAddr>,
    /// Source port.
    pub src_port: Option<u16>,
    /// Destination port.
    pub dst_port: Option<u16>,
}

/// Values of one kind, of all tuples or of none.
fn column<T>(tuples: &Tuples, key: &str, of: impl Fn(&Tuple) -> Option<T>) -> Result<Option<Vec<T>>, String> {
    let values: Vec<T> = tuples.values.iter().filter_map(of).collect();
    match values.len() {
        0 => Ok(None),
        n if n == tuples.values.len() => Ok(Some(values)),
        _ => Err(format!("`{key}' is in some tuples and not in others")),
    }
}

/// Addresses of one family.
fn addresses<T: Value>(tuples: &Tuples, key: &str, of: impl Fn(&Tuple) -> Option<IpAddr>) -> Result<Option<Vec<T>>, String> {
    let family = |a: IpAddr| {
        let (number, bits) = match a {
            IpAddr::V4(a) => (a.number(), 32),
            IpAddr::V6(a) => (a.number(), 128),
        };
        (bits == T::ADDRESS_BITS).then(|| T::of_number(number)).ok_or_else(|| format!("{a} is not {}", T::WHAT))
    };
    column(tuples, key, of)?.map(|all| all.into_iter().map(family).collect()).transpose()
}

/// Puts values into a field that says nothing yet.
fn put<T>(field: &mut Option<Field<T>>, values: Option<Vec<T>>, tuples: &Tuples, key: &str) -> Result<(), String> {
    let Some(values) = values else { return Ok(()) };
    if field.is_some() {
        return Err(format!("`{key}' is in the tuples and in the header: leave it out in one of them"));
    }
    // The same length and the same seed: the same place in the list for all fields.
    *field = Some(match tuples.order {
        Order::Turns => Field::List(values),
        Order::Random => Field::Pick { values, seed: Some(tuples.seed) },
    });
    Ok(())
}

fn put_addresses<T: Value>(ip: &mut Ip<T>, tuples: &Tuples) -> Result<(), String> {
    put(&mut ip.src, addresses(tuples, "src", |t| t.src)?, tuples, "src")?;
    put(&mut ip.dst, addresses(tuples, "dst", |t| t.dst)?, tuples, "dst")
}

impl Stream {
    /// Puts the tuples into the fields of the headers.
    ///
    /// # Errors
    /// They do not fit these.
    pub(super) fn spread_tuples(&mut self) -> Result<(), String> {
        let Some(tuples) = self.tuples.take() else { return Ok(()) };
        if tuples.values.is_empty() {
            return Err("an empty list has no tuple for a frame".to_owned());
        }
        match (&mut self.ipv4, &mut self.ipv6) {
            (Some(ip), _) => put_addresses(ip, &tuples)?,
            (_, Some(ip)) => put_addresses(ip, &tuples)?,
            _ => return Err("tuples need ipv4 or ipv6".to_owned()),
        }
        let (src, dst) = (column(&tuples, "src_port", |t| t.src_port)?, column(&tuples, "dst_port", |t| t.dst_port)?);
        match self.udp.as_mut().or(self.tcp.as_mut()) {
            Some(ports) => {
                put(&mut ports.src, src, &tuples, "src_port")?;
                put(&mut ports.dst, dst, &tuples, "dst_port")
            }
            None if src.is_some() || dst.is_some() => Err("ports in tuples need udp or tcp".to_owned()),
            None => Ok(()),
        }
    }
}
