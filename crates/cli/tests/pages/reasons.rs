//! The page of reasons, made from the table in `baton-policy`.

use baton_policy::{Origin, Reason};

const HEAD: &str = "\
# Reasons

Baton says by one of these codes why a connection stays in the kernel, moves, or comes home.
`baton run --explain` counts them, `baton ps` shows the latest of each connection, and JSON and logs
have them too. A code never changes. [Running programs](../guide/run.md#notes-on-reasons) says more
about some of them.
";

const PARTS: [(Origin, &str, &str); 3] = [
    (
        Origin::Program,
        "From the program",
        "The library in the program gives these: the program did something that only the kernel can do, or its \
         policy keeps the connection in the kernel.",
    ),
    (Origin::Service, "From the service", "The service decided, or one of its processes failed."),
    (
        Origin::Kernel,
        "From the connection or the host",
        "Baton checks these before a move, and follows those that can change while a connection is on the engine.",
    ),
];

/// The whole page.
pub fn page() -> String {
    let mut page = String::from(HEAD);
    for (origin, title, text) in PARTS {
        page.push_str(&format!(
            "\n## {title}\n\n{text}\n\n| reason | what it means | what to do |\n| --- | --- | --- |\n"
        ));
        for reason in Reason::all().filter(|reason| reason.origin() == origin) {
            page.push_str(&format!("| `{reason}` | {} | {} |\n", reason.text(), reason.remedy()));
        }
    }
    page
}

#[test]
fn each_reason_is_on_the_page_once() {
    let page = page();
    for reason in Reason::all() {
        assert_eq!(page.matches(&format!("| `{reason}` |")).count(), 1, "{reason}");
    }
}
