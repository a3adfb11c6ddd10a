//! Bar charts as SVG.

use std::fmt::Write;

use super::table::short;

/// Bars of one colour.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// For the legend.
    pub name: String,
    /// A height for each category; `None` leaves a gap.
    pub values: Vec<Option<f64>>,
    /// Published values are drawn hollow, the first published series in the colour of the first of
    /// ours, and so on.
    pub published: bool,
}

/// Groups of bars.
#[derive(Clone, PartialEq, Debug)]
pub struct Chart {
    /// Above the chart.
    pub title: String,
    /// What the heights are.
    pub unit: String,
    /// Below each group.
    pub categories: Vec<String>,
    /// The bars of each group.
    pub series: Vec<Series>,
}

impl Series {
    /// What we got.
    #[must_use]
    pub fn ours(name: &str, values: Vec<Option<f64>>) -> Self {
        Self {
            name: name.to_owned(),
            values,
            published: false,
        }
    }

    /// What the paper has.
    #[must_use]
    pub fn published(name: &str, values: Vec<Option<f64>>) -> Self {
        Self {
            published: true,
            ..Self::ours(name, values)
        }
    }
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 70.0;
const BOTTOM: f64 = 40.0;
const TOP: f64 = 44.0;
/// Dark blue, orange, green, grey: told apart without colour vision too.
const COLOURS: [&str; 4] = ["#1f4e79", "#e08214", "#4d9221", "#777777"];

impl Chart {
    /// The chart as an SVG element.
    #[must_use]
    pub fn svg(&self) -> String {
        let heights = self.series.iter().flat_map(|s| &s.values).flatten();
        let top = nice_top(heights.copied().fold(0.0, f64::max));
        let mut out = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" xmlns=\"http://www.w3.org/2000/svg\" \
             font-family=\"sans-serif\" font-size=\"11\"><title>{}</title>\n",
            escape(&self.title)
        );
        self.axes(&mut out, top);
        self.bars(&mut out, top);
        self.legend(&mut out);
        out + "</svg>\n"
    }

    fn axes(&self, out: &mut String, top: f64) {
        let height = HEIGHT - TOP - BOTTOM;
        for step in 0..=4 {
            let value = top * f64::from(step) / 4.0;
            let y = TOP + height * (1.0 - f64::from(step) / 4.0);
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                short(value),
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"4\" y=\"{:.1}\">{}</text>",
            TOP - 10.0,
            escape(&self.unit)
        );
    }

    fn bars(&self, out: &mut String, top: f64) {
        let height = HEIGHT - TOP - BOTTOM;
        let group = (WIDTH - LEFT) / self.categories.len().max(1) as f64;
        let bar = group * 0.8 / self.series.len().max(1) as f64;
        for (at, category) in self.categories.iter().enumerate() {
            let left = LEFT + group * at as f64;
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                left + group / 2.0,
                HEIGHT - BOTTOM + 16.0,
                escape(category),
            );
            for (place, series) in self.series.iter().enumerate() {
                let Some(&Some(value)) = series.values.get(at) else {
                    continue;
                };
                let (colour, fill) = self.colours(place);
                // What costs where it should save stands in the tables.
                let tall = height * value.max(0.0) / top;
                let _ = writeln!(
                    out,
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{tall:.1}\" fill=\"{fill}\" \
                     stroke=\"{colour}\"><title>{}, {}: {}</title></rect>",
                    left + group * 0.1 + bar * place as f64,
                    TOP + height - tall,
                    (bar - 1.0).max(0.5),
                    escape(&series.name),
                    escape(category),
                    short(value),
                );
            }
        }
    }

    /// Outline and filling of the series at `place`.
    fn colours(&self, place: usize) -> (&'static str, &'static str) {
        let published = self.series[place].published;
        let before = self.series[..place]
            .iter()
            .filter(|s| s.published == published);
        let colour = COLOURS[before.count() % COLOURS.len()];
        (colour, if published { "white" } else { colour })
    }

    fn legend(&self, out: &mut String) {
        let mut x = LEFT;
        for (place, series) in self.series.iter().enumerate() {
            let (colour, fill) = self.colours(place);
            let _ = writeln!(
                out,
                "<rect x=\"{x:.0}\" y=\"6\" width=\"10\" height=\"10\" fill=\"{fill}\" stroke=\"{colour}\"/>\
                 <text x=\"{:.0}\" y=\"15\">{}</text>",
                x + 14.0,
                escape(&series.name),
            );
            x += 30.0 + 6.5 * series.name.len() as f64;
        }
    }
}

/// The next of 1, 2, 4, 5, 8 times a power of ten.
pub(super) fn nice_top(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 4.0, 5.0, 8.0, 10.0];
    let step = steps.into_iter().find(|step| step * power >= value);
    step.unwrap_or(10.0) * power
}

/// Text for HTML and SVG.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_tall_as_their_values_and_gaps_stay_empty() {
        let series = |values: [Option<f64>; 2], published| Series {
            name: "a < b".to_owned(),
            values: values.to_vec(),
            published,
        };
        let chart = Chart {
            title: "t".to_owned(),
            unit: "s".to_owned(),
            categories: vec!["x".to_owned(), "y".to_owned()],
            series: vec![
                series([Some(50.0), None], false),
                series([Some(100.0), Some(25.0)], true),
            ],
        };
        let svg = chart.svg();
        // Three bars and two marks of the legend.
        assert_eq!(svg.matches("<rect").count(), 5);
        assert!(
            svg.contains("height=\"108.0\"") && svg.contains("height=\"216.0\""),
            "{svg}"
        );
        assert!(!svg.contains("a < b"));
    }

    #[test]
    fn the_axis_ends_at_a_round_number() {
        assert_eq!(
            [0.0, 7.0, 83.0, 120.0, 8398.0].map(nice_top),
            [1.0, 8.0, 100.0, 200.0, 10_000.0]
        );
    }
}
