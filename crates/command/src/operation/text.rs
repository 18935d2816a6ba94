//! How a reply is shown.

/// In which form an answer is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Render {
    /// The command language's text.
    #[default]
    Text,
    /// The reply as JSON.
    Json,
    /// Both.
    Both,
}

/// What the rendering may know about whoever reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct View {
    /// Text, JSON or both.
    pub render: Render,
    /// Columns of the terminal; none for a pipe, and then nothing may be shortened.
    pub width: Option<u16>,
    /// Whether colours and cursor movement may be used.
    pub ansi: bool,
}

impl View {
    /// A view that gives text without regard to any terminal.
    pub const TEXT: Self = Self { render: Render::Text, width: None, ansi: false };
    /// A view that gives JSON only.
    pub const JSON: Self = Self { render: Render::Json, width: None, ansi: false };
    /// A view that gives both.
    pub const BOTH: Self = Self { render: Render::Both, width: None, ansi: false };
}

/// The command language's rendering of a reply.
pub trait Text {
    /// Appends complete lines, each ended by `\n`; nothing at all where success is silent.
    fn text(&self, out: &mut String, view: &View);

    /// Whether the request was carried out and what it tried did not succeed, as a ping to which nothing came back. It is no
    /// error; `quiverctl` ends with exit status 1.
    fn is_negative(&self) -> bool {
        false
    }
}

/// Silent success; JSON `null`.
impl Text for () {
    fn text(&self, _out: &mut String, _view: &View) {}
}

/// The text itself; a missing line end is added.
impl Text for String {
    fn text(&self, out: &mut String, _view: &View) {
        out.push_str(self);
        if !self.is_empty() && !self.ends_with('\n') {
            out.push('\n');
        }
    }
}

/// One after the other.
impl<T: Text> Text for Vec<T> {
    fn text(&self, out: &mut String, view: &View) {
        for item in self {
            item.text(out, view);
        }
    }
}

/// Nothing for `None`.
impl<T: Text> Text for Option<T> {
    fn text(&self, out: &mut String, view: &View) {
        if let Some(item) = self {
            item.text(out, view);
        }
    }
}
