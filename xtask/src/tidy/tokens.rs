//! Rust source as tokens, for rules that comments and strings must not trip.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A path such as `std::time::Instant::now`, from an expression or a `use` tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path {
    /// Names between the double colons, in order.
    pub segments: Vec<String>,
    /// The line of its first segment (of its last, in a `use` tree).
    pub line: usize,
    /// Followed by `!`: a macro.
    pub is_macro: bool,
}

/// Which tokens to leave out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tests {
    /// Items under `#[cfg(test)]` or `#[test]`.
    LeaveOut,
    /// None.
    Keep,
}

/// Every path in a file, within groups and macros, too; a single name is a path.
///
/// # Errors
/// If the source is not Rust.
pub fn paths(source: &str, tests: Tests) -> Result<Vec<Path>, String> {
    let stream: TokenStream = source.parse().map_err(|e| format!("not Rust: {e}"))?;
    let mut found = Vec::new();
    walk(stream, &[], tests, &mut found);
    Ok(found)
}

/// A name that a `use` at the top of a file brings into it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Import {
    /// The name, after `as` if there is one.
    pub name: String,
    /// The path that it stands for.
    pub segments: Vec<String>,
}

/// Names that a file's own `use` items bring in, those of tests left out. Globs name nothing.
///
/// # Errors
/// If the source is not Rust.
pub fn imports(source: &str) -> Result<Vec<Import>, String> {
    let stream: TokenStream = source.parse().map_err(|e| format!("not Rust: {e}"))?;
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if is_test_attribute(&tokens[at..]) {
            at = skip_item(&tokens, at);
        } else if is_ident(&tokens[at], "use") {
            import(&tokens[at + 1..], &[], &mut found);
            at = skip_item(&tokens, at);
        } else {
            at += 1;
        }
    }
    Ok(found)
}

/// Takes the comma-separated trees of a `use`, up to its semicolon.
fn import(tokens: &[TokenTree], prefix: &[String], found: &mut Vec<Import>) {
    let is_end = |token: &TokenTree| matches!(token, TokenTree::Punct(p) if [',', ';'].contains(&p.as_char()));
    let mut rest = tokens;
    while !rest.is_empty() {
        let len = rest.iter().position(is_end).unwrap_or(rest.len());
        let (tree, after) = rest.split_at(len);
        let mut segments = prefix.to_vec();
        segments.extend(tree.iter().filter_map(|token| match token {
            TokenTree::Ident(word) => Some(word.to_string()),
            _ => None,
        }));
        match tree.last() {
            Some(TokenTree::Group(group)) => import(&group.stream().into_iter().collect::<Vec<_>>(), &segments, found),
            Some(TokenTree::Ident(_)) => found.push(named(segments)),
            // A glob, or nothing behind the last comma.
            _ => {}
        }
        if is_punct(after.first(), ';') {
            break;
        }
        rest = after.get(1..).unwrap_or_default();
    }
}

/// The import of a path that may end in `self` or in `as` and a name.
fn named(mut segments: Vec<String>) -> Import {
    let renamed = segments.len() > 2 && segments[segments.len() - 2] == "as";
    let name = if renamed { segments.pop() } else { None };
    if renamed {
        segments.pop();
    }
    if segments.len() > 1 && segments.last().is_some_and(|last| last == "self") {
        segments.pop();
    }
    Import { name: name.or_else(|| segments.last().cloned()).unwrap_or_default(), segments }
}

fn is_ident(token: &TokenTree, name: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == name)
}

fn walk(stream: TokenStream, prefix: &[String], tests: Tests, found: &mut Vec<Path>) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        if tests == Tests::LeaveOut && is_test_attribute(&tokens[at..]) {
            at = skip_item(&tokens, at);
            continue;
        }
        match &tokens[at] {
            TokenTree::Ident(_) => at = path(&tokens, at, prefix, tests, found),
            TokenTree::Group(group) => {
                // Only braces right after `::` go on with a path; `path` takes those.
                walk(group.stream(), &[], tests, found);
                at += 1;
            }
            _ => at += 1,
        }
    }
}

/// Takes the path that starts at `at`; returns where it ends.
fn path(tokens: &[TokenTree], mut at: usize, prefix: &[String], tests: Tests, found: &mut Vec<Path>) -> usize {
    let mut segments = prefix.to_vec();
    let line = tokens[at].span().start().line;
    while let Some(TokenTree::Ident(name)) = tokens.get(at) {
        segments.push(name.to_string());
        at += 1;
        if !is_colons(&tokens[at..]) {
            break;
        }
        at += 2;
        if let Some(TokenTree::Group(group)) = tokens.get(at)
            && group.delimiter() == Delimiter::Brace
        {
            tree(group.stream(), &segments, tests, found);
            return at + 1;
        }
    }
    let is_macro = is_punct(tokens.get(at), '!') && !is_punct(tokens.get(at + 1), '=');
    found.push(Path { segments, line, is_macro });
    at
}

/// The braces of a `use` tree: each path in it goes on from `prefix`.
fn tree(stream: TokenStream, prefix: &[String], tests: Tests, found: &mut Vec<Path>) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        if matches!(tokens[at], TokenTree::Ident(_)) {
            at = path(&tokens, at, prefix, tests, found);
        } else {
            at += 1;
        }
    }
}

fn is_punct(token: Option<&TokenTree>, c: char) -> bool {
    matches!(token, Some(TokenTree::Punct(p)) if p.as_char() == c)
}

fn is_colons(tokens: &[TokenTree]) -> bool {
    is_punct(tokens.first(), ':') && is_punct(tokens.get(1), ':')
}

/// `#[test]`, `#[cfg(test)]` or `#[cfg(all(test, …))]`.
fn is_test_attribute(tokens: &[TokenTree]) -> bool {
    let [TokenTree::Punct(hash), TokenTree::Group(group), ..] = tokens else { return false };
    if hash.as_char() != '#' || group.delimiter() != Delimiter::Bracket {
        return false;
    }
    let text: String = group.stream().to_string().split_whitespace().collect();
    text == "test" || text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

/// Where the item that starts at `at` ends: after its braces or semicolon.
fn skip_item(tokens: &[TokenTree], mut at: usize) -> usize {
    while at < tokens.len() {
        let end = match &tokens[at] {
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            token => is_punct(Some(token), ';'),
        };
        at += 1;
        if end {
            break;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(source: &str, tests: Tests) -> Vec<String> {
        paths(source, tests).unwrap().into_iter().map(|p| p.segments.join("::")).collect()
    }

    #[test]
    fn use_trees_are_spread() {
        let found = names("use std::{fs, io::{self, Read as R}, time::Instant};", Tests::Keep);
        for path in ["std::fs", "std::io::self", "std::io::Read", "std::time::Instant"] {
            assert!(found.iter().any(|f| f == path), "{path} in {found:?}");
        }
    }

    #[test]
    fn paths_in_macros_and_groups_are_found_but_not_in_comments_and_strings() {
        let found = names("// std::fs::a\nfn f() { assert!(x(std::fs::read(\"std::fs::b\")), \"\"); }", Tests::Keep);
        assert!(found.contains(&"std::fs::read".to_owned()), "{found:?}");
        assert!(!found.iter().any(|f| f.ends_with('a') || f.ends_with('b')), "{found:?}");
    }

    #[test]
    fn imports_are_named_with_what_they_stand_for() {
        let source = "use a::b;\npub use super::{c, d::{self, E as F}};\nuse g::*;\nfn f() { use h::i; }\n\
                      #[cfg(test)]\nuse j::k;\nuse l as m;";
        let found: Vec<_> =
            imports(source).unwrap().into_iter().map(|i| format!("{}={}", i.name, i.segments.join("::"))).collect();
        assert_eq!(found, ["b=a::b", "c=super::c", "d=super::d", "F=super::d::E", "m=l"]);
    }

    #[test]
    fn macros_are_told_from_comparisons() {
        let found = paths("fn f() { dbg!(1); if a != b {} }", Tests::Keep).unwrap();
        let macros: Vec<_> = found.iter().filter(|p| p.is_macro).map(|p| p.segments.join("::")).collect();
        assert_eq!(macros, ["dbg"]);
    }

    #[test]
    fn tests_can_be_left_out() {
        let source =
            "fn a() {}\n#[cfg(test)]\nmod tests { use std::fs; }\n#[cfg(all(test, x))] use std::net;\nfn b() {}";
        let found = names(source, Tests::LeaveOut);
        assert!(!found.iter().any(|f| f.starts_with("std")), "{found:?}");
        assert!(found.contains(&"b".to_owned()));
        assert!(names(source, Tests::Keep).contains(&"std::fs".to_owned()));
    }

    #[test]
    fn lines_are_known() {
        assert_eq!(paths("\n\nfoo();", Tests::Keep).unwrap()[0].line, 3);
    }
}
