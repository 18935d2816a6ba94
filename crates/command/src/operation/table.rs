//! Text in fixed columns.

use std::fmt::{Display, Write as _};

/// Where a cell's text stands in its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// At the left edge.
    Left,
    /// At the right edge.
    Right,
    /// In the middle; an odd blank goes to the left, as in VPP's headings.
    Centre,
}

#[derive(Debug, Clone, Copy)]
struct Column {
    heading: &'static str,
    heading_align: Align,
    align: Align,
    width: usize,
}

/// Writes rows in columns of fixed width, as VPP's `show` commands do.
///
/// Text longer than its column is never cut: it pushes the rest of its row to the right.
///
/// ```
/// use quiver_command::operation::{Align, TextTable};
/// let table = TextTable::new().column("Name", 10, Align::Left).column("Idx", 5, Align::Right);
/// let mut out = String::new();
/// table.heading(&mut out);
/// table.row(&mut out, &[&"pg0", &2]);
/// assert_eq!(out, "   Name    Idx \npg0           2\n");
/// ```
#[derive(Debug, Clone, Default)]
pub struct TextTable {
    columns: Vec<Column>,
    gap: usize,
    trim: bool,
}

impl TextTable {
    /// A table without columns, and without blanks between them.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a column; its heading is centred.
    pub fn column(self, heading: &'static str, width: usize, align: Align) -> Self {
        self.column_with(heading, Align::Centre, width, align)
    }

    /// Adds a column whose heading has an alignment of its own.
    pub fn column_with(mut self, heading: &'static str, heading_align: Align, width: usize, align: Align) -> Self {
        self.columns.push(Column { heading, heading_align, align, width });
        self
    }

    /// Puts `blanks` between neighbouring columns.
    pub fn gap(mut self, blanks: usize) -> Self {
        self.gap = blanks;
        self
    }

    /// Leaves out blanks at the end of each line.
    pub fn trim(mut self) -> Self {
        self.trim = true;
        self
    }

    /// Appends the line of headings.
    pub fn heading(&self, out: &mut String) {
        let start = out.len();
        for (number, column) in self.columns.iter().enumerate() {
            self.space(out, number);
            pad(out, column.heading, column.width, column.heading_align);
        }
        self.end(out, start);
    }

    /// Appends a row. Missing cells are blank; cells beyond the columns follow after one blank each.
    pub fn row(&self, out: &mut String, cells: &[&dyn Display]) {
        let start = out.len();
        let mut text = String::new();
        for (number, column) in self.columns.iter().enumerate() {
            self.space(out, number);
            text.clear();
            if let Some(cell) = cells.get(number) {
                // Writing to a String fails only if the value's own Display does; the cell is then cut there.
                let _ = write!(text, "{cell}");
            }
            pad(out, &text, column.width, column.align);
        }
        for cell in cells.iter().skip(self.columns.len()) {
            let _ = write!(out, " {cell}");
        }
        self.end(out, start);
    }

    fn space(&self, out: &mut String, number: usize) {
        if number > 0 {
            out.extend(std::iter::repeat_n(' ', self.gap));
        }
    }

    fn end(&self, out: &mut String, start: usize) {
        if self.trim {
            let kept = out[start..].trim_end_matches(' ').len();
            out.truncate(start + kept);
        }
        out.push('\n');
    }
}

/// Appends `text` padded with blanks to `width` characters.
fn pad(out: &mut String, text: &str, width: usize, align: Align) {
    let blanks = width.saturating_sub(text.chars().count());
    let before = match align {
        Align::Left => 0,
        Align::Right => blanks,
        Align::Centre => blanks.div_ceil(2),
    };
    out.extend(std::iter::repeat_n(' ', before));
    out.push_str(text);
    out.extend(std::iter::repeat_n(' ', blanks - before));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reproduces_the_heading_of_show_interface() {
        let table = TextTable::new()
            .column("Name", 32, Align::Left)
            .column("Idx", 5, Align::Right)
            .column("State", 10, Align::Centre)
            .column("MTU (L3/IP4/IP6/MPLS)", 21, Align::Centre)
            .column("Counter", 16, Align::Left)
            .column("Count", 16, Align::Right);
        let mut out = String::new();
        table.heading(&mut out);
        assert_eq!(out, "              Name               Idx    State  MTU (L3/IP4/IP6/MPLS)     Counter          Count     \n");
    }

    #[test]
    fn long_text_is_not_cut() {
        let table = TextTable::new().column("A", 2, Align::Left).column("B", 2, Align::Right).gap(1);
        let mut out = String::new();
        table.row(&mut out, &[&"long", &1]);
        assert_eq!(out, "long  1\n");
    }

    #[test]
    fn trimming_takes_only_the_blanks_at_the_end() {
        let table = TextTable::new().column("A", 4, Align::Left).column("B", 4, Align::Left).trim();
        let mut out = String::from("  ");
        table.row(&mut out, &[]);
        table.row(&mut out, &[&"x"]);
        assert_eq!(out, "  \nx\n");
    }
}
