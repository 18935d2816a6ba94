//! `show plugins`, `plugin load`, `plugin unload`.

use std::path::PathBuf;
use std::rc::Rc;

use quiver_command::configuration::Stage;
use quiver_command::operation::{Align, OpError, Outcome, Registry, Text, TextTable, View, retval};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::files::Elsewhere;
use quiver_net::{Plugin, Router};
use quiver_plugin_host::{Info, Library, Plugins, Refused, configuration, find, names};
use serde::Serialize;

use crate::daemon::{Privileges, registry_with};
use crate::journal::Journal;
use crate::plugin::{Code, PluginInfo, options};
use crate::startup;
use crate::system::System;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry
        .declare::<ShowPlugins>()
        .declare::<LoadPlugin>()
        .declare::<UnloadPlugin>()
        .actions(&["plugin_load", "plugin_unload"])
        .configuration(Stage::Services, configuration);
}

/// Starts a plugin in a shared object; gives all operations with its own.
///
/// # Errors
/// It does not start, or its commands are there already; then nothing of it is left.
pub fn start(
    router: &mut Router,
    library: Library,
    linked: &[Plugin],
    config: &startup::Plugins,
) -> Result<Rc<Registry<Router>>, Refused> {
    let file = library.file();
    let loaded = Plugins::start(router, library, &options(config, &file))?;
    let (info, nodes) = (loaded.info(), loaded.nodes().count());
    drop(loaded);
    match registry_with(linked, Plugins::of(router)) {
        Ok(registry) => {
            tracing::info!(target: "plugin", "{}: {} loaded, nodes: {nodes}", info.file, info.version);
            Ok(Rc::new(registry))
        }
        Err(error) => {
            // It was started just now.
            let _ = Plugins::stop(router, &file);
            Err(Refused { name: file, why: error.to_string() })
        }
    }
}

/// Has the router know the operations that there are now.
fn publish(router: &mut Router, registry: Rc<Registry<Router>>) -> Result<(), OpError> {
    if let Some(journal) = router.part::<Rc<Journal>>() {
        journal.cover(registry.covered().clone());
    }
    System::of(router)?.registry.set(registry);
    Ok(())
}

request! {
    /// Shows the plugins that are on.
    pub read ShowPlugins "plugins_show" ["show plugins"] {}
}

/// The answer of [`ShowPlugins`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct PluginList {
    /// In the order in which they were started.
    pub plugins: Vec<PluginInfo>,
    /// Where those in shared objects lie, with colons between.
    #[serde(skip)]
    pub path: String,
}

impl Execute<Router> for ShowPlugins {
    type Reply = PluginList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, PluginList>, OpError> {
        let linked = System::of(router)?.plugins.iter().map(|plugin| PluginInfo {
            name: plugin.name().to_owned(),
            version: super::version::version().trim_start_matches('v').to_owned(),
            description: plugin.description.to_owned(),
            code: Code::Linked,
        });
        let loaded = |info: Info, code| PluginInfo { name: info.file, version: info.version, description: info.about, code };
        let mut list: Vec<PluginInfo> = linked.collect();
        list.extend(Plugins::of(router).iter().map(|one| loaded(one.info(), Code::Loaded)));
        list.extend(Plugins::stuck(router).iter().map(|info| loaded(info.clone(), Code::Leaving)));
        let folders: Vec<String> = System::of(router)?.plugin_folders.iter().map(|folder| folder.display().to_string()).collect();
        Ok(Outcome::Done(PluginList { plugins: list, path: folders.join(":") }))
    }
}

impl Text for PluginList {
    fn text(&self, out: &mut String, _view: &View) {
        out.extend([" Plugin path is: ", self.path.as_str(), "\n\n"]);
        let left = |table: TextTable, heading, width| table.column_with(heading, Align::Left, width, Align::Left);
        let table = [("", 5), ("Plugin", 41), ("Version", 33), ("Description", 0)];
        let table = table.into_iter().fold(TextTable::new().trim(), |table, (heading, width)| left(table, heading, width));
        table.heading(out);
        for (number, plugin) in self.plugins.iter().enumerate() {
            let code = match plugin.code {
                Code::Linked => "",
                Code::Loaded => " (shared object)",
                Code::Leaving => " (off; gone at the next start)",
            };
            let description = format!("{}{code}", plugin.description);
            table.row(out, &[&format!("{:3}. ", number + 1), &plugin.name, &plugin.version, &description]);
        }
    }
}

request! {
    /// Loads a plugin in a shared object from one of the folders of `plugins { path }`. The next start loads it by itself, unless startup.conf disables it.
    pub change LoadPlugin "plugin_load" ["plugin load"] {
        /// Name of the plugin or its file.
        pub name: String = "<name>",
    }
}

impl Execute<Router> for LoadPlugin {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        if router.part::<Privileges>().is_some_and(Privileges::limits_calls) {
            let error =
                OpError::new(retval::UNSUPPORTED, "this router's system calls are limited, and code is loaded only at its start");
            return Err(error.remedy("restart it: a start loads what lies in the folders of `plugins { path }'"));
        }
        if let Some(loaded) = Plugins::find(router, &self.name) {
            let error = format!("plugin `{}' is loaded already", loaded.info().file);
            return Err(OpError::new(retval::VALUE_EXIST, error).key("name"));
        }
        let system = System::of(router)?;
        let (linked, folders, startup) = (system.plugins.clone(), system.plugin_folders.clone(), Rc::clone(&system.startup));
        // The file is read, and what its compiler put at its beginning runs, while the main thread goes on.
        let open = move || open(&folders, self.name);
        let begin = move |router: &mut Router, library| {
            let registry = start(router, library, &linked, &startup.plugins).map_err(no_plugin)?;
            publish(router, registry)
        };
        Ok(Outcome::job(Elsewhere::new(open, begin).alone()))
    }
}

/// Loads the plugin that `name` means from one of the folders.
fn open(folders: &[PathBuf], name: String) -> Result<Library, OpError> {
    let found = find(folders);
    let Some(file) = found.iter().find(|found| names(&found.file, &name)) else {
        let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        let error = OpError::new(retval::NO_SUCH_ENTRY, format!("no plugin `{name}' in {}", folders.join(", ")));
        let remedy = match found.is_empty() {
            true => "there are none; put the shared object there".to_owned(),
            false => format!("there are: {}", found.iter().map(|found| found.file.as_str()).collect::<Vec<_>>().join(", ")),
        };
        return Err(error.key("name").value(name).remedy(remedy));
    };
    Library::open(&file.path).map_err(no_plugin)
}

fn no_plugin(refused: Refused) -> OpError {
    OpError::unspecified(refused.to_string()).key("name")
}

request! {
    /// Switches a plugin in a shared object off, with all that was configured of it, and unloads it. The next start loads it again, unless startup.conf disables it.
    pub change UnloadPlugin "plugin_unload" ["plugin unload"] {
        /// Name of the plugin or its file.
        pub name: String = "<name>",
    }
}

/// What became of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Unloaded {
    /// Its memory is given back. Otherwise something of it runs: it is off, and gone at the next start.
    pub unloaded: bool,
}

impl Text for Unloaded {
    fn text(&self, out: &mut String, _: &View) {
        if !self.unloaded {
            out.push_str("the plugin is off; something of it still runs, so that it is gone at the next start only\n");
        }
    }
}

impl Execute<Router> for UnloadPlugin {
    type Reply = Unloaded;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Unloaded>, OpError> {
        let linked = System::of(router)?.plugins.clone();
        if Plugins::find(router, &self.name).is_none() && linked.iter().any(|plugin| plugin.is_called(&self.name)) {
            let error = OpError::new(retval::UNSUPPORTED, format!("plugin `{}' is part of the program", self.name)).key("name");
            return Err(error.remedy("switch it off in startup.conf: plugins { plugin NAME { disable } }"));
        }
        let unloaded = Plugins::stop(router, &self.name)?;
        let registry = registry_with(&linked, Plugins::of(router)).map_err(|error| OpError::unspecified(error.to_string()))?;
        publish(router, Rc::new(registry))?;
        Ok(Outcome::Done(Unloaded { unloaded }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn show_plugins_has_the_usual_columns() {
        let plugin = |code| PluginInfo {
            name: "abf_plugin.so".into(),
            version: "26.06-release".into(),
            description: "Access Control List (ACL) Based Forwarding".into(),
            code,
        };
        let mut out = String::new();
        let plugins = vec![plugin(Code::Linked), plugin(Code::Loaded)];
        PluginList { plugins, path: "/a:/b".to_owned() }.text(&mut out, &View::TEXT);
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(
            lines,
            [
                " Plugin path is: /a:/b",
                "",
                "     Plugin                                   Version                          Description",
                "  1. abf_plugin.so                            26.06-release                    Access Control List (ACL) Based Forwarding",
                "  2. abf_plugin.so                            26.06-release                    Access Control List (ACL) Based Forwarding \
                 (shared object)",
            ]
        );
    }
}
