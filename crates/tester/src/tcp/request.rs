//! A trial of connections, as a client of `serve` asks for it.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::profile::Profile;
use super::trial::Plan;
use crate::request::seconds;

/// A trial; what is not said is as on the command line.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpRequest {
    /// The profile, a document.
    #[serde(default)]
    profile: Option<Value>,
    /// Or its file.
    #[serde(default)]
    file: Option<PathBuf>,
    /// Connections opened a second.
    rate: f64,
    /// Seconds of opening.
    #[serde(default = "ten")]
    duration: f64,
    /// Seconds to wait at most for those that are open then.
    #[serde(default = "ten")]
    settle: f64,
    /// Seconds without an answer after which an end gives up.
    #[serde(default = "five")]
    timeout: f64,
    /// Connections that may be open at once.
    #[serde(default = "most_open")]
    most_open: usize,
    /// Seed of what is drawn.
    #[serde(default = "one")]
    seed: u64,
}

fn ten() -> f64 {
    10.0
}

fn five() -> f64 {
    5.0
}

fn most_open() -> usize {
    10_000
}

fn one() -> u64 {
    1
}

impl TcpRequest {
    /// Reads a request of `serve`, without its `id` and `op`.
    ///
    /// # Errors
    /// In one line what is wrong with it.
    pub fn of(request: &Value) -> Result<Self, String> {
        crate::request::read(request)
    }

    /// What is to be done.
    ///
    /// # Errors
    /// In one line what cannot be.
    pub fn plan(&self) -> Result<Plan, String> {
        let profile = match (&self.profile, &self.file) {
            (Some(document), None) => Profile::of_document("request", document.clone()),
            (None, Some(file)) => Profile::load(file),
            _ => return Err("give either `profile', a document, or `file', its path".to_owned()),
        };
        Ok(Plan {
            profile: Arc::new(profile.map_err(|e| e.to_string())?),
            rate: self.rate,
            duration: seconds("duration", self.duration, false)?,
            settle: seconds("settle", self.settle, true)?,
            timeout: seconds("timeout", self.timeout, false)?,
            most_open: self.most_open,
            departure_limit: super::trial::DEPARTURE_LIMIT,
            patience: super::trial::PATIENCE,
            seed: self.seed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn what_is_asked_for_is_read_and_what_cannot_be_is_refused_in_one_line() {
        let profile = json!({
            "name": "p", "clients": "10.0.0.1", "servers": "10.1.0.1",
            "connections": [{ "name": "a", "port": 80, "request": 10, "response": 10 }],
        });
        let request = json!({ "id": 3, "op": "tcp", "profile": profile, "rate": 100, "settle": 0, "most_open": 7 });
        let plan = TcpRequest::of(&request).unwrap().plan().unwrap();
        assert_eq!((plan.rate, plan.duration, plan.settle), (100.0, Duration::from_secs(10), Duration::ZERO));
        assert_eq!((plan.most_open, plan.seed, plan.max_frame()), (7, 1, 1522));
        for (key, value, words) in [
            ("rate", json!("fast"), "rate: invalid type"),
            ("duration", json!(0), "`duration' is a number of seconds above 0"),
            ("settle", json!(-1), "`settle' is a number of seconds from 0"),
            ("file", json!("p.yaml"), "give either `profile'"),
            ("profile", json!({ "name": "p" }), "request: top: missing field `clients`"),
            ("size", json!(64), "unknown field `size`"),
        ] {
            let mut request = request.clone();
            request[key] = value;
            let error = match TcpRequest::of(&request) {
                Ok(request) => request.plan().expect_err("refused"),
                Err(error) => error,
            };
            assert!(error.contains(words) && !error.contains('\n'), "{key}: {error}");
        }
    }
}
