//! Lines that fit a terminal.

/// Columns that a report may take; only paths may be longer.
pub const COLUMNS: usize = 80;

/// Breaks `text` at its blanks into lines of at most [`COLUMNS`], each behind the first indented by `indent` columns. A
/// longer word stays whole, a percent sign stays with its number, and blanks before the first word stay.
pub fn wrap(text: &str, indent: usize) -> String {
    let body = text.trim_start_matches(' ');
    let mut column = text.len() - body.len();
    let mut out = " ".repeat(column);
    let mut words = body.split(' ').enumerate().peekable();
    while let Some((at, word)) = words.next() {
        let len = word.chars().count();
        let sign =
            words.peek().filter(|(_, next)| next.starts_with('%')).map_or(0, |(_, next)| 1 + next.chars().count());
        if at > 0 && column > indent && column + 1 + len + sign > COLUMNS && !word.starts_with('%') {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else if at > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += len;
    }
    out
}

/// Appends a row of a table: a name, and behind it figures that end at the same column everywhere. A name that leaves
/// them no room has a line of its own.
pub fn row(out: &mut String, name: &str, figures: &str) {
    let room = (COLUMNS - 1).saturating_sub(2 + figures.chars().count());
    let lone = name.chars().count() > room;
    let (before, within) = if lone { (format!("  {name}\n"), "") } else { (String::new(), name) };
    out.push_str(&before);
    out.push_str(format!("  {within:<room$}{figures}").trim_end());
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_and_keep_every_word() {
        let text = "share of frames that are joined to another, 85.0 % of them, ".repeat(20);
        for indent in [0, 2, 21] {
            let wrapped = wrap(&text, indent);
            assert!(wrapped.lines().all(|line| line.chars().count() <= COLUMNS), "{wrapped}");
            assert!(wrapped.lines().all(|line| !line.trim_start().starts_with('%')), "{wrapped}");
            assert!(wrapped.lines().skip(1).all(|line| line.starts_with(&" ".repeat(indent))), "{wrapped}");
            assert!(wrapped.split_whitespace().eq(text.split_whitespace()), "{wrapped}");
        }
        let path = "/a".repeat(90);
        assert_eq!(wrap(&format!("note: {path}: damaged"), 2), format!("note:\n  {path}:\n  damaged"));
        assert_eq!(wrap("short", 4), "short");
        assert_eq!(wrap("  two before", 2), "  two before");
    }

    #[test]
    fn figures_of_rows_end_at_one_column() {
        let mut out = String::new();
        row(&mut out, "short", " 12 3");
        row(&mut out, &"n".repeat(72), " 12 3");
        row(&mut out, &"n".repeat(73), " 12 3");
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.iter().map(|line| line.len()).collect::<Vec<_>>(), [79, 79, 75, 79]);
        assert!(lines[3].starts_with("      ") && lines[3].ends_with(" 12 3"));
    }
}
