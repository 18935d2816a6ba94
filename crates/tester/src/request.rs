//! What a client of `quiver-tester serve` asks for: one JSON object, read into one of these, or one line that says what is wrong.
//! `apps/quiver-tester/README.md` documents every key.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::port::PortSpec;
use crate::profile::{Profile, Size};
use crate::stateful::StatefulRequest;
use crate::tcp::TcpRequest;
use crate::trial::Plan;
use crate::units::{Rate, line_rate};

/// Longest time that a trial can be asked to take, seconds: a day.
const LONGEST_S: f64 = 86_400.0;

/// A request.
#[derive(Clone, Debug)]
pub enum Request {
    /// Open these ports in place of those that are open.
    Ports(Vec<PortSpec>),
    /// Use this profile from now on.
    Profile(Box<Profile>),
    /// Use the profile of this file from now on.
    ProfileFile(PathBuf),
    /// Run a trial.
    Trial(TrialRequest),
    /// Say how far a trial is.
    Stats,
    /// Go on with another rate in the trial that runs.
    Rate(Rate),
    /// End the trial that runs.
    Abort,
    /// Measure a gateway that tracks connections.
    Stateful(Box<StatefulRequest>),
    /// Open connections of TCP, and say something over them.
    Tcp(Box<TcpRequest>),
    /// Measure what the tester itself can do.
    SelfTest(SelfTestRequest),
}

/// A self-test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SelfTestRequest {
    /// How long each of its trials is.
    pub duration: Option<Duration>,
    /// How long the one at nine tenths of its maximum is, where that is another time.
    pub hold: Option<Duration>,
}

impl SelfTestRequest {
    /// How long its trials are; two seconds unless asked for.
    pub fn duration(&self) -> Duration {
        self.duration.unwrap_or(Duration::from_secs(2))
    }
}

/// What a trial is asked to do; what is not said is as [`Plan::new`] has it.
#[derive(Clone, Debug, Default)]
pub struct TrialRequest {
    /// Load of each direction.
    pub rate: Option<Rate>,
    /// Sizes in place of the profile's.
    pub size: Option<Size>,
    /// How long to send; more than nothing.
    pub duration: Option<Duration>,
    /// How long to wait afterwards.
    pub settle: Option<Duration>,
    /// Line rate, bits a second.
    pub line_rate: Option<f64>,
    /// Seed of what the profile leaves to chance.
    pub seed: Option<u64>,
}

impl TrialRequest {
    /// The trial with a profile.
    pub fn plan(self, profile: Profile) -> Plan {
        let usual = Plan::new(profile);
        Plan {
            rate: self.rate,
            size: self.size,
            line_rate: self.line_rate,
            duration: self.duration.unwrap_or(usual.duration),
            settle: self.settle.unwrap_or(usual.settle),
            seed: self.seed.unwrap_or(usual.seed),
            ..usual
        }
    }
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// In one line what is wrong with it.
    pub fn of(request: &Value) -> Result<Self, String> {
        match request.get("op").and_then(Value::as_str) {
            Some("ports") => ports(request),
            Some("profile") => profile(request),
            Some("trial") => trial(request).map(Self::Trial),
            Some("stateful") => StatefulRequest::of(request).map(|r| Self::Stateful(Box::new(r))),
            Some("tcp") => TcpRequest::of(request).map(|r| Self::Tcp(Box::new(r))),
            Some("self-test") => {
                check_keys(request, &["duration", "hold"])?;
                Ok(Self::SelfTest(SelfTestRequest { duration: length(request, "duration")?, hold: length(request, "hold")? }))
            }
            Some("stats") => check_keys(request, &[]).map(|()| Self::Stats),
            Some("rate") => {
                check_keys(request, &["rate"])?;
                let rate = request.get("rate").and_then(Value::as_str).ok_or("`rate' is a text such as 1.5Mpps")?;
                rate.parse().map(Self::Rate).map_err(text)
            }
            Some("abort") => check_keys(request, &[]).map(|()| Self::Abort),
            _ => Err("`op' is one of ports, profile, trial, rate, abort, stats, stateful, tcp, self-test".to_owned()),
        }
    }
}

fn text(error: impl std::fmt::Display) -> String {
    crate::profile::one_line(&error.to_string())
}

/// Reads a request whose keys are those of a structure, without its `id` and `op`; in one line what is wrong with it.
pub(crate) fn read<T: serde::de::DeserializeOwned>(request: &Value) -> Result<T, String> {
    let mut object = request.as_object().cloned().ok_or("a request is an object")?;
    object.retain(|key, _| !["id", "op"].contains(&key.as_str()));
    serde_path_to_error::deserialize(Value::Object(object)).map_err(|e| {
        let (path, inner) = (e.path().to_string(), e.inner().to_string());
        crate::profile::on_one_line(&if path == "." { inner } else { format!("{path}: {inner}") })
    })
}

/// A time of so many seconds, which may be nothing or must be more.
pub(crate) fn seconds(what: &str, seconds: f64, may_be_none: bool) -> Result<Duration, String> {
    if (0.0..=LONGEST_S).contains(&seconds) && (may_be_none || seconds > 0.0) {
        return Ok(Duration::from_secs_f64(seconds));
    }
    let least = if may_be_none { "from" } else { "above" };
    Err(format!("`{what}' is a number of seconds {least} 0 and up to {LONGEST_S}"))
}

/// Refuses keys that a request does not have.
fn check_keys(request: &Value, keys: &[&str]) -> Result<(), String> {
    let object = request.as_object().ok_or("a request is an object: {\"id\": 1, \"op\": \"stats\"}")?;
    match object.keys().find(|k| !["id", "op"].contains(&k.as_str()) && !keys.contains(&k.as_str())) {
        None => Ok(()),
        Some(key) if keys.is_empty() => Err(format!("{key:?} is not known here; there are no further keys")),
        Some(key) => Err(format!("{key:?} is not known here; there are: {}", keys.join(", "))),
    }
}

fn ports(request: &Value) -> Result<Request, String> {
    check_keys(request, &["ports"])?;
    let texts = request.get("ports").and_then(Value::as_array).ok_or("`ports' is a list of texts")?;
    let specs = texts.iter().map(|t| t.as_str().ok_or("`ports' is a list of texts".to_owned())?.parse().map_err(text));
    specs.collect::<Result<_, _>>().map(Request::Ports)
}

fn profile(request: &Value) -> Result<Request, String> {
    check_keys(request, &["profile", "file"])?;
    match (request.get("profile"), request.get("file").and_then(Value::as_str)) {
        (Some(document), None) => {
            Profile::of_document("request", document.clone()).map(|p| Request::Profile(Box::new(p))).map_err(text)
        }
        (None, Some(file)) => Ok(Request::ProfileFile(file.into())),
        _ => Err("give either `profile', a document, or `file', its path".to_owned()),
    }
}

fn time(request: &Value, key: &str) -> Result<Option<Duration>, String> {
    let seconds = request.get(key).map(|v| v.as_f64().filter(|s| (0.0..=LONGEST_S).contains(s)));
    seconds
        .map(|s| s.map(Duration::from_secs_f64).ok_or(format!("`{key}' is a number of seconds from 0 to {LONGEST_S}")))
        .transpose()
}

/// A time of more than nothing.
fn length(request: &Value, key: &str) -> Result<Option<Duration>, String> {
    match time(request, key)? {
        Some(time) if time.is_zero() => Err(format!("`{key}' must be above 0")),
        time => Ok(time),
    }
}

fn trial(request: &Value) -> Result<TrialRequest, String> {
    check_keys(request, &["rate", "size", "duration", "settle", "line_rate", "seed"])?;
    let word = |key: &str| request.get(key).map(|v| v.as_str().ok_or(format!("`{key}' is a text"))).transpose();
    Ok(TrialRequest {
        rate: word("rate")?.map(|t| t.parse().map_err(text)).transpose()?,
        size: request.get("size").map(|v| serde_json::from_value::<Size>(v.clone()).map_err(text)).transpose()?,
        duration: length(request, "duration")?,
        settle: time(request, "settle")?,
        line_rate: word("line_rate")?.map(|t| line_rate(t).map_err(text)).transpose()?,
        seed: request.get("seed").map(|v| v.as_u64().ok_or("`seed' is a whole number")).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn error_of(request: Value) -> String {
        let error = Request::of(&request).expect_err("no request");
        assert!(!error.contains('\n'), "{error:?}");
        error
    }

    #[test]
    fn a_trial_has_what_was_asked_and_the_usual_for_the_rest() {
        let request = json!({ "id": 1, "op": "trial", "rate": "5000pps", "size": [64, 128], "duration": 0.5, "seed": 9 });
        let Ok(Request::Trial(trial)) = Request::of(&request) else { panic!("a trial") };
        let plan = trial.plan(crate::trial::plain_profile(64));
        assert_eq!((plan.rate, plan.size, plan.seed), (Some(Rate::Pps(5000.0)), Some(Size::List(vec![64, 128])), 9));
        assert_eq!((plan.duration, plan.settle), (Duration::from_millis(500), Duration::from_millis(500)));
    }

    #[test]
    fn what_is_no_request_is_refused_in_one_line() {
        for (request, words) in [
            (json!([]), "`op' is one of"),
            (json!({ "op": "trial", "speed": 1 }), "\"speed\" is not known here; there are: rate"),
            (json!({ "op": "stats", "a\nb": 1 }), "\"a\\nb\" is not known here; there are no further keys"),
            (json!({ "op": "ports", "ports": ["veth0"] }), "no kind of port"),
            (json!({ "op": "ports" }), "a list of texts"),
            (json!({ "op": "profile" }), "either `profile'"),
            (json!({ "op": "profile", "profile": { "name": "p", "streams": [] } }), "request: streams: there are 0"),
            (json!({ "op": "trial", "duration": 0 }), "above 0"),
            (json!({ "op": "trial", "settle": -1 }), "from 0 to 86400"),
            (json!({ "op": "trial", "size": 63 }), "64 to 9216"),
            (json!({ "op": "trial", "rate": 5 }), "`rate' is a text"),
            (json!({ "op": "trial", "seed": "x" }), "whole number"),
            (json!({ "op": "rate" }), "`rate' is a text"),
            (json!({ "op": "rate", "rate": "fast" }), "`fast' is no rate"),
            (json!({ "op": "rate", "rate": "1pps", "size": 64 }), "there are: rate"),
            (json!({ "op": "self-test", "hold": 0 }), "`hold' must be above 0"),
            (json!({ "op": "self-test", "rate": 0 }), "there are: duration, hold"),
            (json!({ "op": "stateful", "measure": "speed" }), "measure: `speed' is no measurement"),
        ] {
            let error = error_of(request.clone());
            assert!(error.contains(words), "{request}: {error}");
        }
    }
}
