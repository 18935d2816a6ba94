//! Manual pages and shell completion of the daemon, from what declares its options and the keys of `startup.conf`.

use std::fmt::Write as _;

use quiver_command::config::{Reference, roff_text};

use super::arguments::{Flag, OPTIONS};

/// The files with their names: `quiver.8`, `quiver.conf.5`, and completion for bash, zsh and fish.
pub fn files(reference: &Reference) -> Vec<(&'static str, String)> {
    vec![
        ("quiver.8", program()),
        ("quiver.conf.5", configuration(reference)),
        // The name that VPP's users look for.
        ("startup.conf.5", ".so man5/quiver.conf.5\n".to_owned()),
        ("quiver.bash", bash(reference)),
        ("_quiver", zsh()),
        ("quiver.fish", fish()),
    ]
}

fn heading(name: &str, section: u8, title: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(".TH {name} {section} \"\" \"Quiver {version}\" \"{title}\"\n")
}

fn program() -> String {
    let mut out = heading("QUIVER", 8, "Operating the router");
    out.push_str(
        ".SH NAME\nquiver \\- router data plane\n.SH SYNOPSIS\n.B quiver\n[\\fB\\-c\\fR \\fIFILE\\fR]\n.br\n.B quiver\n[\\fB\\-i\\fR] [\\fISECTION\\fR { \
         \\fIKEY VALUE\\fR ... } ...]\n.SH DESCRIPTION\nThe packet processing daemon. Its configuration is a file of sections, or the same words on \
         the command line.\nA running router is configured and observed by\n.BR quiverctl (1).\n.SH OPTIONS\n",
    );
    for flag in OPTIONS {
        let _ = writeln!(out, ".TP\n{}\n{}.", flag.roff(), roff_text(flag.help));
    }
    out.push_str(
        ".SH FILES\n.TP\n.I /etc/quiver/startup.conf\nThe usual place of the configuration.\n.TP\n.I /run/quiver\nSockets, and files that commands \
         write.\n.SH EXAMPLES\n.EX\nquiver \\-c /etc/quiver/startup.conf\nquiver unix { interactive } cpu { main\\-core 1 workers 2 }\n.EE\n\
         .SH SEE ALSO\n.BR quiver.conf (5),\n.BR quiverctl (1),\n.BR quiver\\-tester (1)\n",
    );
    out
}

fn configuration(reference: &Reference) -> String {
    let mut out = heading("QUIVER.CONF", 5, "Operating the router");
    out.push_str(
        ".SH NAME\nquiver.conf, startup.conf \\- configuration that a router starts with\n.SH DESCRIPTION\nA file of sections, named by\n\
         .BR \"quiver \\-c\" .\nA section is a name and keys in braces; a key has a value, a group of keys, or stands alone.\n\
         .B #\nbegins a comment. A size may end in k, M or G. Unknown sections and keys are errors.\n.PP\n.EX\nunix {\n  nodaemon\n  \
         startup\\-config /etc/quiver/router.cli\n}\ncpu { main\\-core 1 workers 2 }\n.EE\n.SH SECTIONS\n",
    );
    out.push_str(&reference.roff());
    out.push_str(".SH SEE ALSO\n.BR quiver (8)\n");
    out
}

fn words(reference: &Reference) -> String {
    let names = reference.sections.iter().filter(|section| section.effective().next().is_some()).map(|section| section.name);
    let options = OPTIONS.iter().flat_map(|flag| flag.names());
    options.chain(names.map(str::to_owned)).collect::<Vec<_>>().join(" ")
}

fn bash(reference: &Reference) -> String {
    let with_value = |wanted| -> String {
        let flags = OPTIONS.iter().filter(|flag| flag.value == Some(wanted)).flat_map(|flag| flag.names());
        flags.collect::<Vec<_>>().join(" | ")
    };
    format!(
        "# Completion of quiver's options and sections.\n_quiver() {{\n  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}}\n  \
         case $before in\n    {}) mapfile -t COMPREPLY < <(compgen -f -- \"$current\") ;;\n    {}) mapfile -t COMPREPLY < <(compgen -d -- \"$current\") ;;\n    \
         *) mapfile -t COMPREPLY < <(compgen -W '{}' -- \"$current\") ;;\n  esac\n}}\ncomplete -F _quiver quiver\n",
        with_value("FILE"),
        with_value("FOLDER"),
        words(reference)
    )
}

fn zsh() -> String {
    let mut out = String::from("#compdef quiver\n_arguments \\\n");
    for flag in OPTIONS {
        let takes = match flag.value {
            Some("FILE") => ":file:_files",
            Some(_) => ":folder:_files -/",
            None => "",
        };
        for name in flag.names() {
            let _ = writeln!(out, "  '{name}[{}]{takes}' \\", flag.help.replace('\'', "").replace(['[', ']'], ""));
        }
    }
    out.push_str("  '*:section: '\n");
    out
}

fn fish() -> String {
    let mut out = String::new();
    for Flag { short, long, value, help } in OPTIONS {
        let short = short.map(|short| format!(" -s {short}")).unwrap_or_default();
        let takes = if value.is_some() { " -r" } else { "" };
        let _ = writeln!(out, "complete -c quiver{short} -l {long}{takes} -d '{}'", help.replace('\'', "\\'"));
    }
    out
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn bash_completes_options_sections_and_files() {
        let reference = super::super::schema().reference();
        let complete = |line: &str| {
            let script = format!(
                "{}COMP_WORDS=({line} '') COMP_CWORD={}; _quiver; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
                bash(&reference),
                line.split(' ').count()
            );
            let output = Command::new("bash").arg("-c").arg(script).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
            assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let words = complete("quiver");
        assert!(words.lines().any(|word| word == "--config") && words.lines().any(|word| word == "unix"), "{words}");
        assert!(!words.contains("api-segment"), "a section without effect: {words}");
        assert!(complete("quiver -c").lines().any(|word| word == "Cargo.toml"));
        assert!(complete("quiver --api-json").lines().all(|word| word != "Cargo.toml"));
    }

    #[test]
    fn the_pages_have_every_option_and_key() {
        let reference = super::super::schema().reference();
        let page = configuration(&reference);
        for section in &reference.sections {
            for key in section.effective() {
                assert!(page.contains(&format!(".B {}\n", roff_text(&key.written))), "{}", key.written);
            }
        }
        let page = program();
        for flag in OPTIONS {
            assert!(page.contains(&roff_text(flag.help)), "{}", flag.long);
        }
    }
}
