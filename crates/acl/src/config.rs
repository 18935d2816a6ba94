//! The `acl-plugin` section of `startup.conf`: VPP's keys.

use quiver_command::config::{Config, ConfigError, Schema, Section};

use crate::control::{SESSIONS_LIMIT, Settings};

/// What the section says.
///
/// # Errors
/// A number that cannot be.
pub fn read(config: &Config) -> Result<Settings, ConfigError> {
    let (block, mut settings) = (config.section("acl-plugin"), Settings::default());
    if let Some(value) = block.get("connection count max") {
        settings.sessions = value.number_in(1..=SESSIONS_LIMIT)?;
    }
    if let Some(value) = block.get("reclassify sessions") {
        settings.reclassify = value.number_in(0..=1_u32)? == 1;
    }
    Ok(settings)
}

/// Adds the section.
pub fn schema(schema: Schema) -> Schema {
    const ONE: &str = "Quiver takes memory for rules and sessions as it needs it";
    let section = Section::new("acl-plugin")
        .about("Access lists")
        .value("connection count max", "number")
        .about("Sessions at most; `set acl-plugin session table max-entries` changes it")
        .default_is("500000")
        .value("reclassify sessions", "0 or 1")
        .about("Whether sessions are looked at again when lists change; `set acl-plugin reclassify-sessions` changes it")
        .default_is("0");
    let ignored = [
        ("connection hash buckets", "number"),
        ("connection hash memory", "size"),
        ("main heap size", "size"),
        ("hash lookup heap size", "size"),
        ("hash lookup hash buckets", "number"),
        ("hash lookup hash memory", "size"),
        ("use tuple merge", "0 or 1"),
        ("tuple merge split threshold", "number"),
    ];
    schema.section(ignored.into_iter().fold(section, |section, (key, what)| section.value(key, what).without_effect(ONE)))
}

#[test]
fn the_section_sets_sessions_and_whether_they_are_looked_at_again() {
    use quiver_command::config::Source;

    let read = |text: &str| read(&schema(Schema::new()).read(Source::file("startup.conf", text)).expect("a configuration"));
    let set = read("acl-plugin { connection count max 1000 connection hash buckets 64 reclassify sessions 1 }").expect("settings");
    assert_eq!(set, Settings { sessions: 1000, reclassify: true, ..Settings::default() });
    assert_eq!(read("").expect("settings"), Settings::default());
    for wrong in ["connection count max 0", "connection count max 16000001", "reclassify sessions 2"] {
        assert!(read(&format!("acl-plugin {{ {wrong} }}")).is_err(), "{wrong}");
    }
}
