//! Warnings beside results. One about many things says how many there are and names the first few; a page
//! has the others folded.

use super::thousands;
use super::wrap::wrap;
use baton_analyse::link::UnknownLinks;
use baton_analyse::report::FileLine;
use baton_apps::html_text::escape;
use std::fmt::Write as _;

/// As many things of a kind are named at once.
const FEW: usize = 3;

/// A warning about results: a sentence, and the things that it concerns if they are several.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Caution {
    says: String,
    /// Empty if the sentence says all.
    each: Vec<String>,
}

impl Caution {
    /// A sentence, without its full stop.
    pub fn new(says: impl Into<String>) -> Caution {
        Caution { says: says.into(), each: Vec::new() }
    }

    /// A sentence about several things, or the only one by itself; `None` if there is none.
    fn about(mut each: Vec<String>, says: String) -> Option<Caution> {
        if each.len() == 1 {
            each.pop().map(Caution::new)
        } else {
            (!each.is_empty()).then_some(Caution { says, each })
        }
    }

    /// Captures that were not read to their end.
    pub fn files(files: &[FileLine]) -> Option<Caution> {
        let trouble = |file: &FileLine| Some(format!("{}: {}", file.path, file.trouble.as_ref()?));
        let bad: Vec<String> = files.iter().filter_map(trouble).collect();
        let (count, all) = (thousands(bad.len() as u64), thousands(files.len() as u64));
        Caution::about(
            bad,
            format!("{count} of {all} captures were not read to their end, and count as far as they were"),
        )
    }

    /// Frames of link types that cannot be read.
    pub fn links(links: &UnknownLinks) -> Option<Caution> {
        let each: Vec<String> = links.cautions().collect();
        let says = format!("frames are of {} link types that cannot be read", each.len());
        Caution::about(each, says)
    }

    /// Appends it to a text for a terminal.
    pub fn text(&self, out: &mut String) {
        let says = format!("note: {}{}", self.says, if self.each.is_empty() { "" } else { ":" });
        let _ = writeln!(out, "\n{}", wrap(&says, 2));
        for one in self.each.iter().take(FEW) {
            let _ = writeln!(out, "{}", wrap(&format!("  {one}"), 4));
        }
        if self.each.len() > FEW {
            let _ = writeln!(out, "  and {} more", thousands((self.each.len() - FEW) as u64));
        }
    }

    /// Appends it to a page.
    pub fn html(&self, out: &mut String) {
        let _ = write!(out, "<div class=\"caution\"><p>{}", escape(&self.says));
        out.push_str(if self.each.is_empty() { ".</p>" } else { ":</p>" });
        list(out, &self.each);
        out.push_str("</div>");
    }
}

/// Appends a list to a page: the first few, and the others folded.
pub(super) fn list(out: &mut String, all: &[String]) {
    let (few, rest) = all.split_at(all.len().min(FEW));
    items(out, few);
    if !rest.is_empty() {
        let _ = write!(out, "<details><summary>and {} more</summary>", thousands(rest.len() as u64));
        items(out, rest);
        out.push_str("</details>");
    }
}

fn items(out: &mut String, all: &[String]) {
    if all.is_empty() {
        return;
    }
    out.push_str("<ul>");
    for one in all {
        let _ = write!(out, "<li>{}</li>", escape(one));
    }
    out.push_str("</ul>");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(bad: usize) -> Vec<FileLine> {
        let good = FileLine { path: "good.pcap".into(), trouble: None, ..FileLine::default() };
        let bad = (0..bad).map(|number| FileLine {
            path: format!("<{number}>.pcap"),
            trouble: Some("cut".into()),
            ..FileLine::default()
        });
        bad.chain([good]).collect()
    }

    fn forms(caution: &Caution) -> (String, String) {
        let (mut text, mut page) = (String::new(), String::new());
        caution.text(&mut text);
        caution.html(&mut page);
        (text, page)
    }

    #[test]
    fn one_bad_file_is_one_sentence_and_none_is_silent() {
        assert_eq!(Caution::files(&files(0)), None);
        let (text, page) = forms(&Caution::files(&files(1)).unwrap());
        assert_eq!(text, "\nnote: <0>.pcap: cut\n");
        assert_eq!(page, "<div class=\"caution\"><p>&lt;0&gt;.pcap: cut.</p></div>");
    }

    #[test]
    fn of_many_bad_files_the_first_are_named_and_the_others_folded() {
        let (text, page) = forms(&Caution::files(&files(1500)).unwrap());
        assert!(text.starts_with("\nnote: 1,500 of 1,501 captures were not read to their end"), "{text}");
        assert!(text.contains("  <2>.pcap: cut\n  and 1,497 more\n") && !text.contains("<3>"), "{text}");
        let (open, folded) = page.split_once("<details>").unwrap();
        assert_eq!(open.matches("<li>").count(), FEW);
        assert!(folded.starts_with("<summary>and 1,497 more</summary>"), "{folded}");
        assert_eq!(folded.matches("<li>").count(), 1497);
    }

    #[test]
    fn a_few_are_not_folded() {
        let (text, page) = forms(&Caution::files(&files(FEW)).unwrap());
        assert!(!text.contains("more") && !page.contains("<details>"), "{text} {page}");
        assert_eq!(page.matches("<li>").count(), FEW);
    }
}
