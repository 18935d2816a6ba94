//! What became of a phase, and what can run one: the tester's ports, or a simulated device.

use std::time::Duration;

use serde::Serialize;

use crate::report::Report;
use crate::trial::TrialError;

/// Why a measurement could not go on.
#[derive(Debug, thiserror::Error)]
pub enum StatefulError {
    /// A trial did not run.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// What was asked for cannot be.
    #[error("{0}")]
    Setting(String),
    /// The command that empties the device's table.
    #[error("the clear command `{command}': {error}")]
    Clear {
        /// The command.
        command: String,
        /// What it said, or what became of it.
        error: String,
    },
}

/// A phase that is over.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Phase {
    /// Frames a second.
    pub rate_pps: f64,
    /// Frames that were to be sent.
    pub intended: u64,
    /// Frames sent.
    pub sent: u64,
    /// Different frames that came through.
    pub received: u64,
    /// Connections that were learnt of them; frames received, in phase 2.
    pub connections: u64,
    /// Frames that came with the four-tuple of another connection.
    pub misdirected: u64,
    /// Whether the tester did what was asked of it.
    pub valid: bool,
    /// Why not.
    pub reasons: Vec<String>,
    /// It was ended before its time.
    pub aborted: bool,
}

impl Phase {
    /// Whether each of so many connections came through, as itself.
    pub fn is_whole(&self, connections: u64) -> bool {
        self.connections == connections && self.received == connections && self.misdirected == 0
    }
}

/// One go of both phases.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Connections that were to be opened.
    pub connections: u64,
    /// What the clear command took before it, seconds; nothing where there is none.
    pub clear_s: Option<f64>,
    /// Phase 1.
    pub phase_1: Phase,
    /// The validation: one frame back for each entry of the state table.
    pub validation: Option<Phase>,
    /// Phase 2 of measurements that have one.
    pub phase_2: Option<Phase>,
    /// `passed`, `failed`, or `invalid` where the tester itself failed.
    pub verdict: Verdict,
}

/// What a step says of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It did what was asked of it.
    Passed,
    /// It did not.
    Failed,
    /// Nothing: the tester did not do its part.
    Invalid,
    /// Nothing: somebody ended it.
    Aborted,
}

/// What runs phases.
pub trait Apparatus {
    /// Empties the device's table, and says how long that took; nothing where it has no way to.
    ///
    /// # Errors
    /// It does not work.
    fn clear(&mut self) -> Result<Option<Duration>, StatefulError>;

    /// Phase 1: opens so many connections, so many a second; the responder learns them.
    ///
    /// # Errors
    /// It cannot begin.
    fn open(&mut self, connections: u64, pps: f64) -> Result<Phase, StatefulError>;

    /// A frame from the responder for each entry of its state table.
    ///
    /// # Errors
    /// It cannot begin.
    fn validate(&mut self, pps: f64) -> Result<Phase, StatefulError>;

    /// Phase 2: traffic over connections that are open.
    ///
    /// # Errors
    /// It cannot begin.
    fn traffic(&mut self, pps: f64) -> Result<(Phase, Option<Report>), StatefulError>;
}
