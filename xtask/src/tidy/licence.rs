//! Licence expressions (SPDX): is there a way to choose only allowed ones?
//!
//! ```text
//! expression = term { "OR" term }        term = factor { "AND" factor }
//! factor = name [ "WITH" name ] | "(" expression ")"
//! ```
//! The old form `MIT/Apache-2.0` means `OR`.

/// Whether `expression` can be satisfied with the `allowed` licences alone. An expression that
/// is not understood is not allowed.
pub fn allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, allowed };
    let result = parser.expression();
    result == Some(true) && parser.words.is_empty()
}

struct Parser<'a> {
    words: &'a [&'a str],
    allowed: &'a [String],
}

impl Parser<'_> {
    fn take(&mut self, word: &str) -> bool {
        let found = self.words.first() == Some(&word);
        if found {
            self.words = &self.words[1..];
        }
        found
    }

    fn expression(&mut self) -> Option<bool> {
        let mut result = self.term()?;
        while self.take("OR") {
            result |= self.term()?;
        }
        Some(result)
    }

    fn term(&mut self) -> Option<bool> {
        let mut result = self.factor()?;
        while self.take("AND") {
            result &= self.factor()?;
        }
        Some(result)
    }

    fn factor(&mut self) -> Option<bool> {
        if self.take("(") {
            let result = self.expression()?;
            return self.take(")").then_some(result);
        }
        let (name, rest) = self.words.split_first()?;
        self.words = rest;
        let mut name = (*name).to_owned();
        if self.take("WITH") {
            let (exception, rest) = self.words.split_first()?;
            self.words = rest;
            name = format!("{name} WITH {exception}");
        }
        Some(self.allowed.contains(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_allowed_way_is_enough_and_all_parts_of_it_are_needed() {
        let ours = ["MIT", "Apache-2.0", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        ] {
            assert!(allowed(good, &ours), "{good}");
        }
        for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR GPL-3.0) AND GPL-3.0", "MIT WITH x", "(MIT", "MIT MIT"] {
            assert!(!allowed(bad, &ours), "{bad}");
        }
    }
}
