//! The samples as an SVG: one panel for each kind of value.

use super::samples::{Samples, Series};

const COLORS: [&str; 4] = ["#2f81f7", "#d29922", "#3fb950", "#8b8b93"];
const LEFT: f64 = 44.0;
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 110.0;
const PANEL: f64 = 170.0;

pub(super) fn draw(samples: &Samples) -> String {
    let panels: [(&str, &[Series]); 3] = [
        ("Resident memory in MB", &samples.memory),
        ("Open files, and connections of Postgres", &samples.open),
        ("MB in Postgres", &samples.table),
    ];
    let mut body = String::new();
    for (number, (title, series)) in (0u32..).zip(panels) {
        body += &panel(f64::from(number) * PANEL + 24.0, title, series);
    }
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {}" role="img" aria-label="Memory, open files and the size of the table during an hour with faults" font-family="system-ui, sans-serif" font-size="13" fill="#79797f">{body}</svg>
"##,
        3.0 * PANEL + 8.0
    )
}

fn panel(top: f64, title: &str, series: &[Series]) -> String {
    let points = || series.iter().flat_map(|series| &series.points);
    let minutes = points().map(|point| point.0).fold(1.0, f64::max);
    let most = points().map(|point| point.1).fold(1.0, f64::max) * 1.1;
    let (bottom, right) = (top + HEIGHT + 8.0, LEFT + WIDTH);
    let mut text = format!(
        r##"<text x="8" y="{top}" font-weight="bold">{title}</text><path d="M{LEFT} {bottom}H{right}" stroke="#8b8b93"/><text x="{LEFT}" y="{:.0}">0</text><text x="{right}" y="{:.0}" text-anchor="end">{minutes:.0} min</text>"##,
        bottom + 16.0,
        bottom + 16.0
    );
    let mut labels = Vec::new();
    for (series, color) in series.iter().zip(COLORS) {
        let y = |value: f64| bottom - value / most * HEIGHT;
        let path: Vec<_> = series
            .points
            .iter()
            .map(|(minute, value)| {
                format!("{:.1} {:.1}", LEFT + minute / minutes * WIDTH, y(*value))
            })
            .collect();
        let last = series.points.last().map_or(0.0, |point| point.1);
        labels.push((y(last), color, format!("{} {last:.0}", series.name)));
        text += &format!(
            r#"<path d="M{}" fill="none" stroke="{color}" stroke-width="1.5"/>"#,
            path.join("L")
        );
    }
    // The labels of lines that end close to each other stand below each other.
    labels.sort_by(|one, other| other.0.total_cmp(&one.0));
    let mut lowest = f64::MAX;
    for (y, color, label) in labels {
        lowest = y.min(lowest - 15.0);
        text += &format!(
            r#"<text x="{:.0}" y="{:.1}" fill="{color}">{label}</text>"#,
            right + 6.0,
            lowest + 4.0
        );
    }
    text
}
