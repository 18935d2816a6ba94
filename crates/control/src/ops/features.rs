//! `show features`.

use std::fmt::Write as _;

use quiver_command::operation::{OpError, Outcome, Registry, Text, View};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::Router;
use serde::Serialize;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowFeatures>();
}

request! {
    /// Shows the feature arcs and the order of their features.
    pub read ShowFeatures "features_show" ["show features"] {
        /// With the place of each feature.
        pub verbose: bool = "verbose",
    }
}

/// An arc and its features in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Arc {
    /// Name of the arc.
    pub arc: &'static str,
    /// Its features.
    pub features: Vec<String>,
}

/// The answer of [`ShowFeatures`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Features {
    /// All arcs.
    pub arcs: Vec<Arc>,
    /// Whether places are shown.
    #[serde(skip)]
    pub verbose: bool,
}

impl Execute<Router> for ShowFeatures {
    type Reply = Features;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Features>, OpError> {
        let arcs = router.graph.arcs().into_iter().map(|(arc, features)| Arc { arc, features }).collect();
        Ok(Outcome::Done(Features { arcs, verbose: self.verbose }))
    }
}

impl Text for Features {
    fn text(&self, out: &mut String, _view: &View) {
        out.push_str("Available feature paths\n");
        for arc in &self.arcs {
            let _ = writeln!(out, "{}:", arc.arc);
            for (place, feature) in arc.features.iter().enumerate() {
                let _ = match self.verbose {
                    true => writeln!(out, "  [{place:2}]: {feature}"),
                    false => writeln!(out, "  {feature}"),
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_stand_indented_below_their_arc() {
        let arcs = vec![Arc { arc: "ip4-unicast", features: vec!["acl".into(), "ip4-lookup".into()] }];
        let mut out = String::new();
        Features { arcs: arcs.clone(), verbose: false }.text(&mut out, &View::TEXT);
        assert_eq!(out, "Available feature paths\nip4-unicast:\n  acl\n  ip4-lookup\n");
        out.clear();
        Features { arcs, verbose: true }.text(&mut out, &View::TEXT);
        assert_eq!(out, "Available feature paths\nip4-unicast:\n  [ 0]: acl\n  [ 1]: ip4-lookup\n");
    }
}
