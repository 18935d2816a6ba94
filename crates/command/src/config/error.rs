//! What is wrong with a configuration, and where.

use super::Source;
use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use std::{fmt, ops::Range, sync::Arc};

/// An error in a configuration. Its display form is one line; [`ConfigError::excerpt`] also shows the
/// place in the text.
#[derive(Clone)]
pub struct ConfigError {
    // Boxed, since results that are almost always good carry it.
    inner: Box<Inner>,
}

#[derive(Clone)]
struct Inner {
    source: Arc<Source>,
    span: Range<usize>,
    message: String,
    help: Option<String>,
}

impl ConfigError {
    pub(super) fn new(source: &Arc<Source>, span: Range<usize>, message: impl Into<String>) -> Self {
        let inner = Inner { source: Arc::clone(source), span, message: message.into(), help: None };
        Self { inner: Box::new(inner) }
    }

    /// Adds what to do about it.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.inner.help = Some(help.into());
        self
    }

    /// The name of the file.
    pub fn file(&self) -> &str {
        &self.inner.source.name
    }

    /// Line and column of the offending text, from 1.
    pub fn position(&self) -> (usize, usize) {
        self.inner.source.position(self.inner.span.start)
    }

    /// The offending text.
    pub fn text(&self) -> &str {
        self.inner.source.text.get(self.inner.span.clone()).unwrap_or_default()
    }

    /// What is wrong, without place and help.
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// Several lines that show the place in the text, with colours if `ansi`.
    pub fn excerpt(&self, ansi: bool) -> String {
        let Inner { source, span, message, help } = &*self.inner;
        let place = AnnotationKind::Primary.span(span.clone());
        let snippet = Snippet::source(source.text.as_str()).path(source.name.as_str()).annotation(place);
        let mut report = Level::ERROR.primary_title(message.as_str()).element(snippet);
        if let Some(help) = help {
            report = report.element(Level::HELP.message(help.as_str()));
        }
        let renderer = if ansi { Renderer::styled() } else { Renderer::plain() };
        renderer.render(&[report])
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = self.position();
        write!(formatter, "{}:{line}:{column}: {}", self.file(), self.inner.message)?;
        match &self.inner.help {
            Some(help) => write!(formatter, "; {help}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ConfigError({self})")
    }
}

impl std::error::Error for ConfigError {}

/// Something that was accepted but has no effect; its display form is one line.
#[derive(Debug, Clone)]
pub struct Notice(ConfigError);

impl Notice {
    pub(super) fn new(error: ConfigError) -> Self {
        Self(error)
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
