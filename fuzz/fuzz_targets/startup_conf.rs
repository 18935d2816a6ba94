//! Any text as a startup.conf: a configuration or an error that points into the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_command::config::{Schema, Section, Source};

fn schema() -> Schema {
    let plugin = || Section::new("plugin").flag("enable").flag("disable");
    Schema::new()
        .section(
            Section::new("unix")
                .flag("nodaemon")
                .value("log", "file")
                .value("cli-listen", "socket")
                .flag("old")
                .without_effect("x"),
        )
        .section(Section::new("cpu").value("main-core", "core").list("corelist-workers", "cores"))
        .section(Section::new("buffers").value("default data-size", "size").named(
            "numa",
            "node",
            Section::new("numa").value("buffers", "n"),
        ))
        .section(Section::new("plugins").group("default", plugin()).named("plugin", "name", plugin()))
        .section(Section::new("node").any("node", Section::new("node").value("variant", "name")))
        .section_without_effect("api-segment", "x")
}

fuzz_target!(|text: &str| {
    let error = match schema().read(Source::file("f", text)) {
        Ok(config) => {
            let (unix, cpu) = (config.section("unix"), config.section("cpu"));
            let values = unix.values("log").chain(cpu.values("main-core")).chain(cpu.values("corelist-workers"));
            for value in values {
                let _ = (value.u32(), value.size(), value.listen(), value.switch(), value.decimal(), value.one_of(&[("fifo", 1)]));
                for cores in [value.cpu_list(), value.cpu_mask()].into_iter().flatten() {
                    assert!(cores.is_sorted() && cores.last().is_none_or(|core| *core < 8192));
                }
            }
            return;
        }
        Err(error) => error,
    };
    assert!(!error.to_string().contains('\n'));
    assert!(text.contains(error.text()));
    let (line, column) = error.position();
    assert!(line >= 1 && column >= 1);
    let _ = error.excerpt(true);
});
