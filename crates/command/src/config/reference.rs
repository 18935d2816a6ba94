//! The reference of `startup.conf`: what a [`Schema`](super::Schema) declares, as Markdown and as a manual page.

use super::schema::{Key, Section, Shape};
use std::fmt::Write as _;

/// A key as a reader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyHelp {
    /// How it is written, with the groups around it: `numa <node> { buffers <number> }`.
    pub written: String,
    /// What it does.
    pub about: &'static str,
    /// The value that holds where nothing is said, as one would write it.
    pub default: Option<&'static str>,
    /// Why it has no meaning here.
    pub ignored: Option<&'static str>,
}

/// A section as a reader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectionHelp {
    /// Its name.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// Its keys, those of groups behind the group.
    pub keys: Vec<KeyHelp>,
    /// Why all of it has no meaning here.
    pub ignored: Option<&'static str>,
}

impl SectionHelp {
    fn new(section: &Section) -> Self {
        let mut keys = Vec::new();
        collect(section, "", "", &mut keys);
        Self { name: section.name, about: section.about, keys, ignored: section.ignored }
    }

    /// Keys that do something.
    pub fn effective(&self) -> impl Iterator<Item = &KeyHelp> {
        self.keys.iter().filter(|key| key.ignored.is_none())
    }

    /// Keys that are accepted without effect.
    pub fn ignored(&self) -> impl Iterator<Item = (&KeyHelp, &'static str)> {
        self.keys.iter().filter_map(|key| Some((key, key.ignored?)))
    }
}

/// All sections and keys that `startup.conf` may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The sections, by name.
    pub sections: Vec<SectionHelp>,
}

/// Adds the keys of a section; `before` and `after` is what stands around each.
fn collect(section: &Section, before: &str, after: &str, into: &mut Vec<KeyHelp>) {
    for (at, key) in section.keys.iter().enumerate() {
        let Key { words, about, default, ignored, .. } = key;
        let mut add = |written: String| {
            into.push(KeyHelp { written: format!("{before}{written}{after}"), about, default: *default, ignored: *ignored });
        };
        let (head, inner) = match &key.shape {
            Shape::Flag => {
                add((*words).to_owned());
                continue;
            }
            Shape::Value(what) | Shape::List(what) => {
                add(format!("{words} <{what}>"));
                continue;
            }
            Shape::Anything => continue,
            Shape::Group(inner) => ((*words).to_owned(), inner),
            Shape::Named(what, inner) => (format!("{words} <{what}>"), inner),
        };
        if !about.is_empty() {
            add(format!("{head} {{ ... }}"));
        }
        // Groups of one kind have the same keys: those of the first are enough.
        if section.keys[..at].iter().all(|earlier| earlier.group_name().is_none_or(|name| name != inner.name)) {
            collect(inner, &format!("{before}{head} {{ "), &format!(" }}{after}"), into);
        }
    }
    if let Some((what, inner)) = &section.any {
        collect(inner, &format!("{before}<{what}> {{ "), &format!(" }}{after}"), into);
    }
}

impl Reference {
    pub(super) fn new(sections: &[Section]) -> Self {
        let mut sections: Vec<_> = sections.iter().map(SectionHelp::new).collect();
        sections.sort_by_key(|section| section.name);
        Self { sections }
    }

    /// Sections and keys that do something and do not say what.
    pub fn undescribed(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for section in self.sections.iter().filter(|section| section.effective().next().is_some()) {
            if section.about.is_empty() {
                missing.push(section.name.to_owned());
            }
            let keys = section.effective().filter(|key| key.about.is_empty());
            missing.extend(keys.map(|key| format!("{} {{ {} }}", section.name, key.written)));
        }
        missing
    }

    /// As a page of the guide.
    pub fn markdown(&self) -> String {
        let mut out = String::from(
            "# startup.conf\n\nEvery section and key, generated from their declarations. A section is `name { key value ... }`; `#` begins a comment.\n\
             `<x>` is a value. A size may end in `k`, `M` or `G`. The default is what holds where the key is not there; a key that stands alone is off by default.\n\
             A section or key that is not listed is an error that names its line. What a running router was told by commands: [configuration](configuration.md).\n",
        );
        let cell = |text: &str| text.replace('|', "\\|");
        for section in self.sections.iter().filter(|section| section.effective().next().is_some()) {
            let _ =
                writeln!(out, "\n## {}\n\n{}.\n\n| key | default | meaning |\n| --- | --- | --- |", section.name, section.about);
            for key in section.effective() {
                let default = key.default.map(|default| format!("`{default}`")).unwrap_or_default();
                let _ = writeln!(out, "| `{}` | {} | {} |", cell(&key.written), cell(&default), cell(key.about));
            }
            for (at, (key, reason)) in section.ignored().enumerate() {
                if at == 0 {
                    out.push_str("\n| accepted without effect | because |\n| --- | --- |\n");
                }
                let _ = writeln!(out, "| `{}` | {} |", cell(&key.written), cell(reason));
            }
        }
        out.push_str(
            "\n## Sections without effect\n\nVPP has these. They are accepted with anything in them, and the log says that they do nothing.\n\n\
             | section | because |\n| --- | --- |\n",
        );
        for section in self.sections.iter().filter(|section| section.effective().next().is_none()) {
            let reason = section.ignored.or_else(|| section.ignored().next().map(|(_, reason)| reason));
            let _ = writeln!(out, "| `{}` | {} |", section.name, cell(reason.unwrap_or_default()));
        }
        out
    }

    /// The sections as the body of a manual page, in the `man` macros.
    pub fn roff(&self) -> String {
        let mut out = String::new();
        for section in self.sections.iter().filter(|section| section.effective().next().is_some()) {
            let _ = writeln!(out, ".SS {}\n{}.", roff_text(section.name), roff_text(section.about));
            for key in section.effective() {
                let _ = writeln!(out, ".TP\n.B {}\n{}.", roff_text(&key.written), roff_text(key.about));
                if let Some(default) = key.default {
                    let _ = writeln!(out, "Default: {}.", roff_text(default));
                }
            }
            let ignored: Vec<_> = section.ignored().map(|(key, _)| roff_text(&key.written)).collect();
            if !ignored.is_empty() {
                let _ = writeln!(out, ".PP\nAccepted without effect: {}.", ignored.join(", "));
            }
        }
        out
    }
}

/// A text in which `man` finds no markup of its own.
pub fn roff_text(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('`', "\\(ga").replace('\'', "\\(aq");
    let text = text.replace('…', "...").replace('µ', "\\(mc").replace('—', "\\(em");
    if text.starts_with('.') { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::super::{Schema, Section};
    use super::*;

    fn schema() -> Schema {
        let numa = Section::new("numa").value("buffers", "number").about("Buffers of one node");
        Schema::new()
            .section(
                Section::new("buffers")
                    .about("Packet memory")
                    .value("page-size", "size")
                    .about("Pages: `4K`, or 2M|1G")
                    .default_is("default")
                    .flag("locked")
                    .without_effect("it always is")
                    .named("numa", "node", numa),
            )
            .section_without_effect("tcp", "there is no host stack")
    }

    #[test]
    fn a_key_stands_with_the_groups_around_it() {
        let written: Vec<_> = schema().reference().sections[0].keys.iter().map(|key| key.written.clone()).collect();
        assert_eq!(written, ["page-size <size>", "locked", "numa <node> { buffers <number> }"]);
    }

    #[test]
    fn the_page_has_defaults_meanings_and_what_has_no_effect() {
        let page = schema().reference().markdown();
        for line in [
            "## buffers\n\nPacket memory.",
            "| `page-size <size>` | `default` | Pages: `4K`, or 2M\\|1G |",
            "| `locked` | it always is |",
            "| `numa <node> { buffers <number> }` |  | Buffers of one node |",
            "| `tcp` | there is no host stack |",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
    }

    #[test]
    fn what_says_nothing_of_itself_is_named() {
        assert!(schema().reference().undescribed().is_empty());
        let bare = Schema::new().section(Section::new("a").flag("b"));
        assert_eq!(bare.reference().undescribed(), ["a", "a { b }"]);
    }

    #[test]
    fn a_manual_page_has_no_markup_that_was_not_meant() {
        assert_eq!(roff_text(".x a-b \\n `c' …"), "\\&.x a\\-b \\en \\(gac\\(aq ...");
        assert!(
            schema().reference().roff().contains(".TP\n.B page\\-size <size>\nPages: \\(ga4K\\(ga, or 2M|1G.\nDefault: default.\n")
        );
    }
}
