//! Text for people, as it can be shown on one line of a terminal or a log.

use std::error::Error;

/// An error and its causes, on one line.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line.push_str(": ");
        line.push_str(&error.to_string());
        cause = error.source();
    }
    shown(&line)
}

/// The text, with what is harmful escaped.
pub(crate) fn shown(text: &str) -> String {
    escape(text, is_harmful)
}

/// Escapes characters in the form of JSON (RFC 8259, section 7), so that a string of JSON stays
/// one. `\` is not escaped, so what was escaped before stays as it is.
pub(crate) fn escape(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            letter if !is_escaped(letter) => escaped.push(letter),
            '\n' => escaped.push_str("\\n"),
            letter => escaped.push_str(&format!("\\u{:04x}", u32::from(letter))),
        }
    }
    escaped
}

/// Whether the character changes how a terminal shows the text around it: a control character, or
/// one that changes the direction of text (UAX #9).
pub(crate) fn is_harmful(letter: char) -> bool {
    let single = ['\u{61c}', '\u{200e}', '\u{200f}'];
    let ranges = ['\u{202a}'..='\u{202e}', '\u{2066}'..='\u{2069}'];
    letter.is_control()
        || single.contains(&letter)
        || ranges.iter().any(|range| range.contains(&letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_change_a_terminal_is_escaped_once() {
        let error: Box<dyn Error> = "/a\n\t\0\x1b[31m\u{9b}\u{202e}\\é e\u{301} 文".into();
        let line = chain(&*error);
        let expected = "/a\\n\\u0009\\u0000\\u001b[31m\\u009b\\u202e\\é e\u{301} 文";
        assert_eq!(line, expected);
        assert_eq!(shown(&line), expected);
        let json = format!("\"{}\"", shown("\u{7f}\u{2066}"));
        let read: Option<String> = serde_json::from_str(&json).ok();
        assert_eq!(read.as_deref(), Some("\u{7f}\u{2066}"));
    }
}
