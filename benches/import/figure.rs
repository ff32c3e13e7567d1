//! What was measured, as a line of JSON and as a row of a table.

use std::fmt::Write;

use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    /// What was measured, in words.
    pub(crate) what: String,
    /// What it was measured beside, in words.
    pub(crate) beside: String,
    pub(crate) value: f64,
    /// What the value is, such as "times as fast".
    pub(crate) unit: &'static str,
    pub(crate) aim: Aim,
    pub(crate) is_met: bool,
    /// The medians that the value is made of, for the plot.
    pub(crate) bars: Vec<Bar>,
    /// What else there is to say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) note: String,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Aim {
    AtLeast(f64),
    AtMost(f64),
}

/// The speed of one of the ways that were compared.
#[derive(Clone, Serialize)]
pub(crate) struct Bar {
    pub(crate) label: &'static str,
    pub(crate) is_audience: bool,
    pub(crate) per_second: f64,
}

impl Figure {
    pub(crate) fn new(name: &'static str, value: f64, unit: &'static str, aim: Aim) -> Self {
        let is_met = match aim {
            Aim::AtLeast(least) => value >= least,
            Aim::AtMost(most) => value <= most,
        };
        Self {
            name,
            what: String::new(),
            beside: String::new(),
            value,
            unit,
            aim,
            is_met,
            bars: Vec::new(),
            note: String::new(),
        }
    }

    pub(crate) fn what(mut self, what: impl Into<String>) -> Self {
        self.what = what.into();
        self
    }

    pub(crate) fn beside(mut self, beside: impl Into<String>) -> Self {
        self.beside = beside.into();
        self
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Adds a bar for `count` things in `seconds`.
    #[expect(clippy::cast_precision_loss, reason = "a rate is not exact")]
    pub(crate) fn bar(mut self, label: &'static str, count: u64, seconds: f64) -> Self {
        self.bars.push(Bar {
            label,
            is_audience: label.starts_with("audience"),
            per_second: count as f64 / seconds,
        });
        self
    }

    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).expect("a figure has only strings and finite numbers")
    }
}

/// Returns the figures as a Markdown table.
pub(crate) fn table(figures: &[Figure]) -> String {
    let mut table = String::from("| what | beside | figure | aim |\n|---|---|---|---|\n");
    for figure in figures {
        let (unit, digits) = (figure.unit, digits(figure.value));
        let (aim, bound) = match figure.aim {
            Aim::AtLeast(least) => ("at least", least),
            Aim::AtMost(most) => ("at most", most),
        };
        let missed = if figure.is_met { "" } else { " (missed)" };
        let note = match figure.note.as_str() {
            "" => String::new(),
            note => format!("; {note}"),
        };
        let (what, beside, value) = (&figure.what, &figure.beside, figure.value);
        writeln!(
            table,
            "| {what} | {beside} | **{value:.digits$}** {unit}{note} | {aim} {bound}{missed} |"
        )
        .expect("a string takes all text");
    }
    table
}

/// Draws the imports as an SVG: a bar for each way, as long as the logarithm of its rows a second.
pub(crate) fn plot(figures: &[Figure]) -> String {
    let is_drawn = |figure: &&Figure| figure.name.starts_with("import") && !figure.bars.is_empty();
    let (mut body, mut y) = (String::new(), 0.0);
    for figure in figures.iter().filter(is_drawn) {
        y += 34.0;
        let what = &figure.what;
        body += &format!(r#"<text x="8" y="{y}" font-weight="bold">{what}</text>"#);
        for bar in &figure.bars {
            y += 26.0;
            let color = if bar.is_audience {
                "#2f81f7"
            } else {
                "#8b8b93"
            };
            let (top, width) = (y - 15.0, 65.0 * bar.per_second.log10());
            let (label, end, value) = (bar.label, 216.0 + width, bar.per_second);
            body += &format!(
                r#"<text x="8" y="{y}">{label}</text><rect x="210" y="{top}" width="{width:.1}" height="20" rx="3" fill="{color}"/><text x="{end:.1}" y="{y}">{value:.0}</text>"#
            );
        }
    }
    let height = y + 20.0;
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" role="img" aria-label="Rows per second of an import, beside other ways" font-family="system-ui, sans-serif" font-size="13" fill="#79797f">{body}</svg>
"##
    )
}

/// Returns how many digits after the point are worth showing.
fn digits(value: f64) -> usize {
    match value {
        100.0.. => 0,
        5.0.. => 1,
        _ => 3,
    }
}

/// Returns a number with commas, such as `100,000`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
