//! Draws the imports: a bar for each way, rows a second, on a logarithmic scale.

use std::fmt::Write;

use crate::figure::{Bar, Figure, grouped};

const WIDTH: f64 = 760.0;
/// Where the bars begin and end.
const LEFT: f64 = 210.0;
const RIGHT: f64 = 670.0;
const BAR: f64 = 22.0;
const GAP: f64 = 8.0;
/// Gray and blue that can be read on white and on black.
const TEXT: &str = "#79797f";
const GRID: &str = "#79797f40";
const OTHERS: &str = "#8b8b93";
const AUDIENCE: &str = "#2f81f7";

/// Returns an SVG with the bars of the imports.
pub(crate) fn draw(figures: &[Figure]) -> String {
    let groups: Vec<_> = figures
        .iter()
        .filter(|figure| figure.name.starts_with("import") && !figure.bars.is_empty())
        .collect();
    let scale = Scale::new(groups.iter().flat_map(|figure| &figure.bars));
    let (mut body, mut y) = (String::new(), 20.0);
    for figure in groups {
        text(&mut body, 8.0, y + 6.0, "start", "bold", &figure.what);
        y += 20.0;
        for bar in &figure.bars {
            draw_bar(&mut body, &scale, y, bar);
            y += BAR + GAP;
        }
        y += 24.0;
    }
    let mut grid = String::new();
    for power in scale.least..=scale.most {
        let (x, value) = (scale.x(10_f64.powi(power)), 10_f64.powi(power));
        let bottom = y - 20.0;
        write!(
            grid,
            r#"<line x1="{x:.1}" y1="34" x2="{x:.1}" y2="{bottom:.1}" stroke="{GRID}"/>"#
        )
        .expect("a string takes all text");
        text(
            &mut grid,
            x,
            bottom + 16.0,
            "middle",
            "normal",
            &rounded(value),
        );
    }
    text(
        &mut grid,
        RIGHT + 82.0,
        y + 16.0,
        "end",
        "normal",
        "rows per second, logarithmic scale",
    );
    let height = y + 26.0;
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0}" width="{WIDTH}" height="{height:.0}" role="img" aria-label="Rows per second of an import, beside other ways" font-family="system-ui, sans-serif" font-size="13">{grid}{body}</svg>
"#
    )
}

fn draw_bar(body: &mut String, scale: &Scale, y: f64, bar: &Bar) {
    let (width, middle) = (scale.x(bar.per_second) - LEFT, y + BAR / 2.0 + 4.5);
    let (color, weight) = match bar.is_audience {
        true => (AUDIENCE, "bold"),
        false => (OTHERS, "normal"),
    };
    text(body, LEFT - 8.0, middle, "end", weight, bar.label);
    write!(
        body,
        r#"<rect x="{LEFT}" y="{y:.1}" width="{width:.1}" height="{BAR}" rx="3" fill="{color}"/>"#
    )
    .expect("a string takes all text");
    let value = rounded(bar.per_second);
    text(body, LEFT + width + 6.0, middle, "start", weight, &value);
}

/// Appends a text, which needs no escapes because all texts are the benchmark's own.
fn text(body: &mut String, x: f64, y: f64, anchor: &str, weight: &str, text: &str) {
    write!(
        body,
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" font-weight="{weight}" fill="{TEXT}">{text}</text>"#
    )
    .expect("a string takes all text");
}

/// Returns a number with two digits that count.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is positive and small"
)]
fn rounded(value: f64) -> String {
    let unit = 10_f64.powi((value.log10().floor() as i32 - 1).max(0));
    grouped(((value / unit).round() * unit) as u64)
}

/// A logarithmic scale between two powers of ten.
struct Scale {
    least: i32,
    most: i32,
}

impl Scale {
    #[expect(clippy::cast_possible_truncation, reason = "a power of ten is small")]
    fn new<'a>(bars: impl Iterator<Item = &'a Bar>) -> Self {
        let (mut least, mut most) = (f64::MAX, 1.0_f64);
        for bar in bars {
            least = least.min(bar.per_second.log10());
            most = most.max(bar.per_second.log10());
        }
        // Of the slowest bar something should be left to see.
        let least = (least - 0.5).floor().min(most - 1.0) as i32;
        let most = most.ceil() as i32;
        Self { least, most }
    }

    fn x(&self, value: f64) -> f64 {
        let (least, most) = (f64::from(self.least), f64::from(self.most));
        LEFT + (RIGHT - LEFT) * (value.log10() - least) / (most - least)
    }
}
