//! Escapes text for HTML.

/// Returns `text` with HTML's special characters written as entities.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
