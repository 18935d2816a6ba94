//! `show restart`: how this process began.

use std::fmt::Write as _;

use quiver_command::operation::{OpError, Outcome, Registry, Text, View};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::Router;
use serde::Serialize;

use crate::restart::Began;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowRestart>();
}

request! {
    /// Shows how this process began: cold, or by taking over from another one; the outage then, and what was taken over.
    pub read ShowRestart "restart_show" ["show restart"] {}
}

/// The answer of [`ShowRestart`].
#[derive(Debug, Clone, Default, Serialize)]
pub struct Restart {
    /// `cold` or `warm`.
    pub start: &'static str,
    /// Why it was cold although another process was to be taken over from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Version of the process before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_version: Option<String>,
    /// When it was taken over from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Time in which nobody received, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outage_ms: Option<f64>,
    /// State that was taken up.
    pub state: Vec<Subject>,
    /// Sockets and devices that were passed on as they were.
    pub descriptors: Vec<String>,
    /// Devices and connections that could not be passed on, and why.
    pub anew: Vec<String>,
    /// Operations that waited for the end of the process before.
    pub retried: usize,
    /// Those of them that failed.
    pub failed: usize,
    /// Another process may take over from this one.
    pub offered: bool,
}

/// State of a subject.
#[derive(Debug, Clone, Serialize)]
pub struct Subject {
    /// Its name.
    pub subject: String,
    /// How many things were taken up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Why none were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Execute<Router> for ShowRestart {
    type Reply = Restart;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Restart>, OpError> {
        let Began { warm, cold_because, offered } = router.part::<Began>().cloned().unwrap_or_default();
        let Some(warm) = warm else {
            return Ok(Outcome::Done(Restart { start: "cold", reason: cold_because, offered, ..Restart::default() }));
        };
        let subject = |restored: quiver_net::restart::Restored| Subject {
            subject: restored.subject,
            count: restored.result.as_ref().ok().copied(),
            error: restored.result.err(),
        };
        Ok(Outcome::Done(Restart {
            start: "warm",
            reason: None,
            from_version: Some(warm.version),
            at: Some(warm.at),
            outage_ms: Some((warm.outage / 1000) as f64 / 1000.0),
            state: warm.restored.into_iter().map(subject).collect(),
            descriptors: warm.descriptors,
            anew: warm.anew,
            retried: warm.retried,
            failed: warm.failed,
            offered,
        }))
    }
}

impl Text for Restart {
    fn text(&self, out: &mut String, _: &View) {
        match (&self.from_version, &self.at, self.outage_ms) {
            (Some(version), Some(at), Some(ms)) => {
                let _ = writeln!(out, "warm start at {at}, taken over from quiver {version}, outage {ms:.3} ms");
            }
            _ => {
                let reason = self.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
                let _ = writeln!(out, "cold start{reason}");
            }
        }
        for Subject { subject, count, error } in &self.state {
            let text = count.map(|count| count.to_string()).or_else(|| error.clone()).unwrap_or_default();
            let _ = writeln!(out, "  {subject:<24} {text}");
        }
        for name in &self.descriptors {
            let _ = writeln!(out, "  passed on as it was      {name}");
        }
        for line in &self.anew {
            let _ = writeln!(out, "  begins anew              {line}");
        }
        if self.retried > 0 {
            let _ = writeln!(
                out,
                "  {} operations waited for the end of the process before, {} of them failed",
                self.retried, self.failed
            );
        }
        let _ = writeln!(out, "another process may take over from this one: {}", if self.offered { "yes" } else { "no" });
    }
}
