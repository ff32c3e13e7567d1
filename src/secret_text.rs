//! Detects text that cannot be a real key or signing secret.

/// Returns the text without white space, byte-order marks and zero-width spaces around it.
pub(crate) fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || matches!(c, '\u{feff}' | '\u{200b}'))
}

/// Returns whether the text is a placeholder for a key or secret, such as `<API_KEY>`, `changeme`,
/// `${WEBHOOK_SECRET}` or a row of asterisks.
pub(crate) fn is_placeholder(text: &str) -> bool {
    const WORDS: [&str; 18] = [
        "changeit",
        "changeme",
        "examplesecret",
        "fixme",
        "insertkeyhere",
        "insertsecrethere",
        "null",
        "placeholder",
        "replaceme",
        "tbd",
        "todo",
        "undefined",
        "yourapikey",
        "yourapikeyhere",
        "yourkey",
        "yoursecret",
        "yoursigningsecret",
        "yourwebhooksecret",
    ];

    let bracketed = [
        ("<", ">"),
        ("${", "}"),
        ("{{", "}}"),
        ("%", "%"),
        ("[", "]"),
    ]
    .iter()
    .any(|(open, close)| text.starts_with(open) && text.ends_with(close));
    let unexpanded = matches!(text, "API_KEY" | "SIGNING_SECRET")
        || text.strip_prefix('$').is_some_and(|name| {
            name.chars()
                .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        });
    let masked = text
        .chars()
        .all(|c| matches!(c, 'x' | 'X' | '*' | '•' | '●' | '.' | '…' | '-' | '_' | '?'));
    let word: String = text
        .chars()
        .filter(|c| !matches!(c, ' ' | '-' | '_' | '.' | '!'))
        .map(|c| c.to_ascii_lowercase())
        .collect();

    bracketed || unexpanded || masked || WORDS.contains(&word.as_str())
}
