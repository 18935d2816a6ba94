//! What to measure, as it is asked for: on the command line, or in a request of `serve`.

use std::time::Duration;

use serde::Deserialize;

use super::connections::{AddressRange, Connections, Ends, Order, PortRange};
use super::gateway::{Course, Flow};
use super::phase::StatefulError;
use super::procedure::{Measure, Settings, check};
use crate::units::Rate;

/// A measurement; what is not said is as the documents tell.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatefulRequest {
    /// What is measured.
    #[serde(deserialize_with = "parsed")]
    pub measure: Measure,
    /// Connections to open.
    pub connections: u64,
    /// Connections opened a second in phase 1, or the highest rate tried.
    #[serde(deserialize_with = "parsed")]
    pub open_rate: Rate,
    /// Frames a second and direction of phase 2, or the highest rate tried; as `open_rate` unless given.
    #[serde(default, deserialize_with = "maybe_parsed")]
    pub rate: Option<Rate>,
    /// Rate of the validation, as a part of that of phase 1.
    #[serde(default)]
    pub alpha: Option<f64>,
    /// Bytes of the initiator's frames with FCS; 64 for IPv4 and 84 for IPv6 unless given.
    #[serde(default)]
    pub size: Option<u16>,
    /// Seconds of sending in phase 2.
    #[serde(default)]
    pub duration: Option<f64>,
    /// Seconds to wait after each phase.
    #[serde(default)]
    pub timeout: Option<f64>,
    /// Part that a searched rate may be off.
    #[serde(default)]
    pub precision: Option<f64>,
    /// By how many connections the capacity may be off.
    #[serde(default)]
    pub error: Option<u64>,
    /// Directions of phase 2.
    #[serde(default)]
    pub direction: Flow,
    /// Addresses of the initiator.
    #[serde(default, deserialize_with = "maybe_parsed")]
    pub initiators: Option<AddressRange>,
    /// Addresses of the responder, as the initiator writes them.
    #[serde(default, deserialize_with = "maybe_parsed")]
    pub responders: Option<AddressRange>,
    /// Source ports of the initiator.
    #[serde(default, deserialize_with = "maybe_parsed")]
    pub initiator_ports: Option<PortRange>,
    /// Destination ports of the initiator.
    #[serde(default, deserialize_with = "maybe_parsed")]
    pub responder_ports: Option<PortRange>,
    /// In which order four-tuples come.
    #[serde(default)]
    pub order: Order,
    /// Seed of the order and of what is drawn.
    #[serde(default)]
    pub seed: Option<u64>,
}

/// Reads what is written as a text.
pub(crate) fn parsed<'de, D: serde::Deserializer<'de>, T: std::str::FromStr<Err: std::fmt::Display>>(
    deserializer: D,
) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

fn maybe_parsed<'de, D: serde::Deserializer<'de>, T: std::str::FromStr<Err: std::fmt::Display>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    parsed(deserializer).map(Some)
}

/// A time in seconds.
fn time(what: &str, seconds: Option<f64>, usual: Duration, may_be_none: bool) -> Result<Duration, StatefulError> {
    let Some(seconds) = seconds else { return Ok(usual) };
    crate::request::seconds(what, seconds, may_be_none).map_err(StatefulError::Setting)
}

impl StatefulRequest {
    /// Reads a request of `serve`, without its `id` and `op`.
    ///
    /// # Errors
    /// In one line what is wrong with it.
    pub fn of(request: &serde_json::Value) -> Result<Self, String> {
        crate::request::read(request)
    }

    /// What is to be done; `clear` is the command that empties the device's table.
    ///
    /// # Errors
    /// Something in it cannot be.
    pub fn plan(&self, clear: Option<String>) -> Result<(Connections, Settings, Course), StatefulError> {
        let wrong = |text: String| StatefulError::Setting(text);
        let usual = Ends::default();
        let ends = Ends {
            initiators: self.initiators.unwrap_or(usual.initiators),
            responders: self.responders.unwrap_or(usual.responders),
            initiator_ports: self.initiator_ports.unwrap_or(usual.initiator_ports),
            responder_ports: self.responder_ports.unwrap_or(usual.responder_ports),
        };
        let seed = self.seed.unwrap_or(1);
        let connections = Connections::new(ends, self.order, seed).map_err(wrong)?;
        let size = self.size.unwrap_or(if ends.initiators.first().is_ipv4() { 64 } else { 84 });
        let pps = |what: &str, rate: Rate| match rate.pps(f64::from(size), None) {
            Ok(Some(pps)) => Ok(pps),
            Ok(None) => Err(wrong(format!("`{what}' is a rate in numbers, such as 100000pps"))),
            Err(error) => Err(wrong(error.to_string())),
        };
        let open_pps = pps("open_rate", self.open_rate)?;
        let settings = Settings {
            connections: self.connections,
            total: connections.total(),
            open_pps,
            alpha: self.alpha.unwrap_or(0.8),
            traffic_pps: self.rate.map_or(Ok(open_pps), |rate| pps("rate", rate))?,
            precision: self.precision.unwrap_or(0.01),
            error: self.error.unwrap_or(1),
        };
        check(&settings)?;
        let course = Course::default();
        let course = Course {
            measure: self.measure,
            size,
            duration: time("duration", self.duration, course.duration, false)?,
            timeout: time("timeout", self.timeout, course.timeout, true)?,
            flow: self.direction,
            clear,
            seed,
            ..course
        };
        Ok((connections, settings, course))
    }

    /// Bytes of the largest frame, without FCS: a device between families may make them longer.
    pub fn max_frame(&self) -> usize {
        usize::from(self.size.unwrap_or(84)) - 4 + 20
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_said_is_usual() {
        let request = json!({ "id": 1, "op": "stateful", "measure": "capacity", "connections": 1000, "open_rate": "5000pps" });
        let (connections, settings, course) = StatefulRequest::of(&request).unwrap().plan(None).unwrap();
        assert_eq!((connections.total(), settings.traffic_pps, settings.error), (64_512 * 100, 5000.0, 1));
        assert_eq!((course.measure, course.size, course.flow, course.clear), (Measure::Capacity, 64, Flow::Both, None));
    }

    #[test]
    fn all_of_it_can_be_said() {
        let request = json!({
            "measure": "trial", "connections": 10, "open_rate": "1Mpps", "rate": "2Mpps", "alpha": 0.5, "size": 128,
            "duration": 0.5, "timeout": 0, "precision": 0.1, "error": 5, "direction": "reverse", "order": "increasing", "seed": 9,
            "initiators": "2001:2::2", "responders": "64:ff9b::c613:2-64:ff9b::c613:9", "initiator_ports": "1-5", "responder_ports": "7",
        });
        let (connections, settings, course) = StatefulRequest::of(&request).unwrap().plan(Some("true".to_owned())).unwrap();
        assert_eq!((connections.total(), settings.alpha, settings.traffic_pps), (40, 0.5, 2e6));
        assert_eq!((course.size, course.flow, course.clear.as_deref()), (128, Flow::Reverse, Some("true")));
        assert_eq!((course.duration, course.timeout), (Duration::from_millis(500), Duration::ZERO));
    }

    #[test]
    fn what_cannot_be_is_refused_in_one_line() {
        for (key, value, words) in [
            ("measure", json!("speed"), "measure: `speed' is no measurement: connections"),
            ("open_rate", json!("max"), "a rate in numbers"),
            ("open_rate", json!(5), "open_rate: invalid type"),
            ("rate", json!("5%"), "line's rate"),
            ("duration", json!(0), "`duration' is a number of seconds above 0"),
            ("timeout", json!(-1), "`timeout' is a number of seconds from 0"),
            ("initiators", json!("2001:2::2"), "different families"),
            ("initiator_ports", json!("9-1"), "initiator_ports: `9-1' ends before"),
            ("direction", json!("up"), "direction: unknown variant"),
            ("clear", json!("reboot"), "unknown field `clear`"),
        ] {
            let mut request = json!({ "op": "stateful", "measure": "connections", "connections": 10, "open_rate": "10pps" });
            request[key] = value;
            let error = match StatefulRequest::of(&request) {
                Ok(request) => request.plan(None).expect_err("refused").to_string(),
                Err(error) => error,
            };
            assert!(error.contains(words) && !error.contains('\n'), "{key}: {error}");
        }
    }
}
