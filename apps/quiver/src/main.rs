//! The data plane daemon: the router with the plugins that are built in.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    quiver::run(&[])
}

#[cfg(test)]
mod tests {
    use quiver_control::log::CLASSES;
    use quiver_control::{BUILT_IN, ops};
    use quiver_net::testing::Harness;
    use std::path::Path;

    /// The classes that the sources of a folder log into: `target: "class"`.
    fn logged(folder: &Path, into: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                logged(&path, into);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let production = text.split("#[cfg(test)]").next().unwrap_or_default();
                let classes = production.split("target: \"").skip(1).filter_map(|rest| rest.split('"').next());
                into.extend(classes.map(str::to_owned));
            }
        }
    }

    #[test]
    fn the_classes_of_the_log_are_those_that_the_sources_name() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates");
        let of = |names: &[&str]| {
            let mut classes = Vec::new();
            names.iter().for_each(|name| logged(&crates.join(name).join("src"), &mut classes));
            classes.sort();
            classes.dedup();
            classes
        };
        let core = ["api", "buffer", "command", "control", "drivers", "graph", "net", "plugin-host", "privilege", "tables", "wire"];
        assert_eq!(of(&core), CLASSES);
        assert_eq!(of(&["nat44"]), quiver_nat44::plugin().log_classes);
        assert_eq!(of(&["linux-cp"]), quiver_linux_cp::plugin().log_classes);
        assert_eq!(of(&["bfd"]), quiver_bfd::plugin().log_classes);
        assert_eq!(of(&["vrrp"]), quiver_vrrp::plugin().log_classes);
        assert_eq!(of(&["bond"]), quiver_bond::plugin().log_classes);
        assert_eq!(of(&["lldp"]), quiver_lldp::plugin().log_classes);
        assert_eq!(of(&["flowprobe"]), quiver_flowprobe::plugin().log_classes);
        assert_eq!(of(&["sflow"]), quiver_sflow::plugin().log_classes);
        assert_eq!(of(&["linux-nl"]), quiver_linux_nl::plugin().log_classes);
        // Devices of DPDK are interfaces.
        assert_eq!(of(&["dpdk"]), ["dpdk", "interface"]);
    }

    /// The plugins of every build.
    fn plugins() -> Vec<quiver_control::Plugin> {
        let ours = [
            quiver_acl::plugin(),
            quiver_bfd::plugin(),
            quiver_bond::plugin(),
            quiver_classify::plugin(),
            quiver_lldp::plugin(),
            quiver_policer::plugin(),
            quiver_fast_path::plugin(),
            quiver_flowprobe::plugin(),
            quiver_sflow::plugin(),
            quiver_nat44::plugin(),
            quiver_linux_cp::plugin(),
            quiver_linux_nl::plugin(),
            quiver_span::plugin(),
            quiver_urpf::plugin(),
            quiver_vrrp::plugin(),
            quiver_vxlan::plugin(),
        ];
        BUILT_IN.into_iter().chain(ours).collect()
    }

    /// Holds a page of docs/ against what the code says; `QUIVER_WRITE=1 cargo test -p quiver page` writes it.
    fn assert_page(name: &str, page: &str) {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
        if std::env::var_os("QUIVER_WRITE").is_some() {
            std::fs::write(&file, page).unwrap();
        }
        let written = std::fs::read_to_string(&file).unwrap_or_default();
        let differs = page.lines().zip(written.lines()).find(|(now, then)| now != then);
        assert!(page == written, "docs/{name} is not up to date (QUIVER_WRITE=1 writes it): {differs:?}");
    }

    #[test]
    fn the_commands_page_is_what_the_commands_declare() {
        assert_page("commands.md", &ops::reference(&plugins(), &Harness::new().router));
    }

    #[test]
    fn the_commands_page_names_all_arguments_and_all_messages() {
        let problems = ops::reference_problems(&plugins());
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    #[test]
    fn the_schema_of_documents_is_what_the_operations_declare() {
        let dpdk = quiver_control::Plugin { register: quiver_dpdk::config::shapes, ..quiver_control::Plugin::new(&["dpdk"], "") };
        assert_page("configuration.schema.json", &ops::document_schema(&plugins().into_iter().chain([dpdk]).collect::<Vec<_>>()));
    }

    /// Those that undo something, or change what another one makes, are in no running configuration.
    #[test]
    fn every_operation_of_the_running_configuration_has_a_place_in_documents() {
        const UNDOING: &[&str] = &[
            "acl_delete",
            "acl_interface_set",
            "bfd_auth_key_delete",
            "bfd_udp_auth_deactivate",
            "bfd_udp_echo_source_delete",
            "bfd_udp_session_delete",
            "bfd_udp_session_modify",
            "bond_member_remove",
            "bridge_domain_delete",
            "interface_delete",
            "interface_reassembly_set",
            "l2fib_del",
            "lcp_default_netns_clear",
            "lcp_delete",
            "macro_undefine",
            "memif_socket_delete",
            "nat44_back_end_set",
            "nat44_plugin_disable",
            "policer_delete",
            "policer_update",
            "vrrp_vr_delete",
            "vrrp_vr_update",
        ];
        let missing: Vec<&str> = ops::without_shape(&plugins()).into_iter().filter(|name| !UNDOING.contains(name)).collect();
        assert!(missing.is_empty(), "say where these stand (Registry::shapes), or that they undo something: {missing:?}");
    }

    #[test]
    fn the_startup_page_is_what_the_sections_declare() {
        let dpdk = quiver_control::Plugin { schema: quiver_dpdk::config::schema, ..quiver_control::Plugin::new(&["dpdk"], "") };
        let reference = ops::startup_reference(&plugins().into_iter().chain([dpdk]).collect::<Vec<_>>());
        assert!(reference.undescribed().is_empty(), "say what these do: {:?}", reference.undescribed());
        assert_page("startup.md", &reference.markdown());
    }

    #[test]
    fn nothing_that_is_there_is_called_absent() {
        let plugins = quiver::plugins();
        let page = ops::reference(&plugins, &Harness::new().router);
        // Of a command, not of an argument: its operation stands last.
        let commands: Vec<&str> = page.lines().filter(|line| line.ends_with("` |")).collect();
        for words in ops::absent::ABSENT.iter().map(|absent| absent.words) {
            let begin = [format!("| `{words} "), format!("| `{words}`")];
            let is_there = commands.iter().any(|line| begin.iter().any(|begin| line.starts_with(begin)));
            assert!(!is_there, "`{words}' is there: take it from control/src/ops/absent.rs and from docs/coming-from-vpp.md");
        }
    }
}
