//! Why the graph refuses a change.

/// Why the graph refused a change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// A name twice.
    #[error("node `{0}' exists already")]
    Duplicate(String),
    /// A next node or a feature that nobody declared.
    #[error("no node `{name}' (named by `{by}')")]
    UnknownNode {
        /// The missing name.
        name: String,
        /// Who named it.
        by: String,
    },
    /// No such node.
    #[error("no node `{0}'")]
    NoSuchNode(String),
    /// No such arc.
    #[error("no feature arc `{0}'")]
    NoSuchArc(String),
    /// No such feature on the arc.
    #[error("no feature `{feature}' on arc `{arc}'")]
    NoSuchFeature {
        /// Feature.
        feature: String,
        /// Arc.
        arc: String,
    },
    /// A node that was declared without a point on the arc it is used on.
    #[error("node `{node}' has no place on feature arc `{arc}'")]
    NotOnArc {
        /// Node.
        node: String,
        /// Arc.
        arc: String,
    },
    /// Features that want to be before one another.
    #[error("features of arc `{arc}' cannot be ordered: {nodes}")]
    Cycle {
        /// Arc.
        arc: String,
        /// Those on the cycle.
        nodes: String,
    },
    /// A value out of range.
    #[error("{what} {value} is out of range, expected {expected}")]
    Range {
        /// What was set.
        what: &'static str,
        /// The value.
        value: u64,
        /// What would do.
        expected: &'static str,
    },
    /// The processor lacks an instruction set.
    #[error("this processor cannot run variant {0}")]
    Variant(&'static str),
    /// The node's loop has no such thing to set.
    #[error("node `{node}' has no {what} to set")]
    NoSetting {
        /// The node.
        node: String,
        /// What it lacks.
        what: &'static str,
    },
    /// Tables are full.
    #[error("no room for more nodes")]
    Full,
    /// A thread could not be started or placed.
    #[error("cannot start worker {thread}: {error}")]
    Thread {
        /// Its number.
        thread: usize,
        /// What the kernel said.
        error: String,
    },
}
