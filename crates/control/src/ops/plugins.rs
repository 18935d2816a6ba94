//! `show plugins`.

use quiver_command::operation::{Align, OpError, Outcome, Registry, Text, TextTable, View};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::Router;
use serde::Serialize;

use crate::plugin::PluginInfo;
use crate::system::System;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowPlugins>();
}

request! {
    /// Shows the plugins that are on.
    pub read ShowPlugins "plugins_show" ["show plugins"] {}
}

/// The answer of [`ShowPlugins`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct PluginList(pub Vec<PluginInfo>);

impl Execute<Router> for ShowPlugins {
    type Reply = PluginList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, PluginList>, OpError> {
        Ok(Outcome::Done(PluginList(System::of(router)?.plugins.clone())))
    }
}

impl Text for PluginList {
    fn text(&self, out: &mut String, _view: &View) {
        out.push_str(" Plugins are built in\n\n");
        let left = |table: TextTable, heading, width| table.column_with(heading, Align::Left, width, Align::Left);
        let table = [("", 5), ("Plugin", 41), ("Version", 33), ("Description", 0)];
        let table = table.into_iter().fold(TextTable::new().trim(), |table, (heading, width)| left(table, heading, width));
        table.heading(out);
        for (number, plugin) in self.0.iter().enumerate() {
            table.row(out, &[&format!("{:3}. ", number + 1), &plugin.name, &plugin.version, &plugin.description]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn show_plugins_has_the_usual_columns() {
        let plugin = PluginInfo {
            name: "abf_plugin.so".into(),
            version: "26.06-release".into(),
            description: "Access Control List (ACL) Based Forwarding".into(),
        };
        let mut out = String::new();
        PluginList(vec![plugin]).text(&mut out, &View::TEXT);
        let (_, table) = out.split_once("\n\n").unwrap();
        assert_eq!(
            table,
            "     Plugin                                   Version                          Description\n  1. \
             abf_plugin.so                            26.06-release                    Access Control List (ACL) Based Forwarding\n"
        );
    }
}
