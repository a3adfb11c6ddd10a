//! Bar charts as SVG.

use std::fmt::Write;

use super::table::{Table, short};

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
    /// The axis reaches the tallest bar, whatever the others are: where one bar among many is what is to be seen.
    pub whole: bool,
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

impl Chart {
    /// The heights in figures, for pages without pictures.
    #[must_use]
    pub fn table(&self) -> Table {
        let name = |series: &Series| match series.published && !series.name.contains("published") {
            true => format!("{}, published", series.name),
            false => series.name.clone(),
        };
        let cell = |series: &Series, at: usize| {
            let value = series.values.get(at).copied().flatten();
            value.map_or("-".to_owned(), short)
        };
        let row = |(at, category): (usize, &String)| {
            let cells = self.series.iter().map(|series| cell(series, at));
            [category.clone()].into_iter().chain(cells).collect()
        };
        Table {
            title: self.title.clone(),
            head: [self.unit.clone()]
                .into_iter()
                .chain(self.series.iter().map(name))
                .collect(),
            rows: self.categories.iter().enumerate().map(row).collect(),
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
        let axis = Axis::of(heights.copied(), self.whole);
        let mut out = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" xmlns=\"http://www.w3.org/2000/svg\" \
             font-family=\"sans-serif\" font-size=\"11\"><title>{}</title>\n",
            escape(&self.title)
        );
        self.axes(&mut out, axis);
        self.bars(&mut out, axis);
        self.legend(&mut out);
        out + "</svg>\n"
    }

    fn axes(&self, out: &mut String, axis: Axis) {
        for value in axis.lines() {
            let y = axis.y(value);
            let divides = value == 0.0 && axis.low < 0.0;
            let colour = if divides { "#888" } else { "#ddd" };
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                axis.label(value),
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"4\" y=\"{:.1}\">{}</text>",
            TOP - 10.0,
            escape(&self.unit)
        );
    }

    fn bars(&self, out: &mut String, axis: Axis) {
        let group = (WIDTH - LEFT) / self.categories.len().max(1) as f64;
        let drawn: Vec<usize> = (0..self.series.len())
            .filter(|&at| self.is_drawn(at))
            .collect();
        let wide = group * 0.8 / drawn.len().max(1) as f64;
        for (at, category) in self.categories.iter().enumerate() {
            let left = LEFT + group * at as f64;
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                left + group / 2.0,
                HEIGHT - BOTTOM + 16.0,
                escape(category),
            );
            for (place, &of) in drawn.iter().enumerate() {
                let value = self.series[of].values.get(at).copied().flatten();
                let left = left + group * 0.1 + wide * place as f64;
                if let Some(value) = value {
                    let title = format!("{}, {category}: {}", self.series[of].name, short(value));
                    let colours = self.colours(of);
                    bar(
                        out,
                        axis,
                        (left, (wide - 1.0).max(0.5)),
                        value,
                        colours,
                        &title,
                    );
                }
            }
        }
    }

    /// Whether the series has any value: what has none is not in the legend either.
    fn is_drawn(&self, at: usize) -> bool {
        self.series[at].values.iter().any(Option::is_some)
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
            if !self.is_drawn(place) {
                continue;
            }
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

/// A bar from zero to `value`, to the end of the axis at most, where its value is written in it.
fn bar(
    out: &mut String,
    axis: Axis,
    (left, wide): (f64, f64),
    value: f64,
    (colour, fill): (&str, &str),
    title: &str,
) {
    let cut = value.clamp(axis.low, axis.high);
    let tall = axis.tall(cut);
    let top = axis.y(0.0) - if cut > 0.0 { tall } else { 0.0 };
    let _ = writeln!(
        out,
        "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{tall:.1}\" fill=\"{fill}\" \
         stroke=\"{colour}\"><title>{}</title></rect>",
        escape(title),
    );
    if cut == value {
        return;
    }
    let ink = if fill == "white" { colour } else { "white" };
    let (x, y) = (
        left + wide / 2.0 + 3.5,
        axis.y(cut) + if value > 0.0 { 6.0 } else { -6.0 },
    );
    let anchor = if value > 0.0 { "end" } else { "start" };
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" transform=\"rotate(-90 {x:.1} {y:.1})\" text-anchor=\"{anchor}\" \
         font-size=\"10\" fill=\"{ink}\">to {}</text>",
        short(value),
    );
}

/// Values more than this many times the middle one would flatten all others.
const FLATTENS: f64 = 4.0;

/// An axis of values: zero is always on it.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Axis {
    low: f64,
    high: f64,
    step: f64,
}

impl Axis {
    /// For these values; for those that flatten others only if `whole`.
    fn of(values: impl Iterator<Item = f64>, whole: bool) -> Self {
        let values: Vec<f64> = values.collect();
        let mut sizes: Vec<f64> = values.iter().map(|value| value.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        let middle = sizes.get(sizes.len() / 2).copied().unwrap_or(0.0);
        let shown = |value: &f64| whole || middle == 0.0 || value.abs() <= FLATTENS * middle;
        let shown = || values.iter().copied().filter(|value| shown(value));
        let (low, high) = (shown().fold(0.0, f64::min), shown().fold(0.0, f64::max));
        if low == 0.0 {
            let high = nice_top(high);
            let step = high / 4.0;
            return Self { low, high, step };
        }
        let step = nice_top((high - low) / 4.0);
        let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        Self { low, high, step }
    }

    /// What is written at a line: as many decimals as tell it from the next.
    fn label(self, value: f64) -> String {
        if self.step.fract() == 0.0 {
            return short(value);
        }
        let told = |digits: &i32| (self.step * 10_f64.powi(*digits)).fract() < 1e-6;
        let digits = (2..4).find(told).unwrap_or(4) as usize;
        format!("{value:.digits$}")
    }

    fn lines(self) -> impl Iterator<Item = f64> {
        let steps = ((self.high - self.low) / self.step).round() as u32;
        (0..=steps).map(move |nth| self.low + self.step * f64::from(nth))
    }

    /// How tall the bar of `value` is.
    fn tall(self, value: f64) -> f64 {
        (HEIGHT - TOP - BOTTOM) * value.abs() / (self.high - self.low)
    }

    fn y(self, value: f64) -> f64 {
        TOP + (HEIGHT - TOP - BOTTOM) * (self.high - value) / (self.high - self.low)
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
            whole: true,
        };
        let svg = chart.svg();
        // Three bars and two marks of the legend.
        assert_eq!(svg.matches("<rect").count(), 5);
        assert!(
            svg.contains("height=\"108.0\"") && svg.contains("height=\"216.0\""),
            "{svg}"
        );
        assert!(!svg.contains("a < b"));
        let table = chart.table();
        assert_eq!(table.head, ["s", "a < b", "a < b, published"]);
        assert_eq!(table.rows, [["x", "50", "100"], ["y", "-", "25"]]);
    }

    #[test]
    fn losses_are_drawn_below_zero() {
        let axis = Axis::of([-30.0, 50.0, 20.0].into_iter(), false);
        assert_eq!((axis.low, axis.high, axis.step), (-40.0, 60.0, 20.0));
        assert_eq!(
            axis.lines().collect::<Vec<_>>(),
            [-40.0, -20.0, 0.0, 20.0, 40.0, 60.0]
        );
        let mut svg = String::new();
        bar(&mut svg, axis, (0.0, 9.0), -30.0, ("#000", "#000"), "t");
        // Zero lies at 173.6, -40 at 260.
        assert!(
            svg.contains("y=\"173.6\" width=\"9.0\" height=\"64.8\""),
            "{svg}"
        );
    }

    #[test]
    fn an_outlier_is_cut_and_says_its_value_and_no_bar_without_data_is_in_the_legend() {
        let values = [700.0, 650.0, 1_990.0, 8_398.0].map(Some).to_vec();
        let mut chart = Chart {
            title: "t".to_owned(),
            unit: "s".to_owned(),
            categories: ["a", "b", "c", "d"].map(str::to_owned).to_vec(),
            series: vec![
                Series::ours("ours", values),
                Series::ours("nothing", vec![None; 4]),
            ],
            whole: false,
        };
        let svg = chart.svg();
        assert!(
            svg.contains(">2,000</text>") && svg.contains(">to 8,398</text>"),
            "{svg}"
        );
        assert!(!svg.contains("nothing"));
        chart.whole = true;
        assert!(chart.svg().contains(">10,000</text>") && !chart.svg().contains(">to "));
    }

    #[test]
    fn the_lines_of_an_axis_are_told_apart() {
        let axis = Axis::of([0.9].into_iter(), false);
        let labels: Vec<_> = axis.lines().map(|line| axis.label(line)).collect();
        assert_eq!(labels, ["0.00", "0.25", "0.50", "0.75", "1.00"]);
        let small = Axis::of([0.045].into_iter(), false);
        assert_eq!(small.label(0.0125), "0.0125");
        assert_eq!(Axis::of([90.0].into_iter(), false).label(25.0), "25");
    }

    #[test]
    fn the_axis_ends_at_a_round_number() {
        assert_eq!(
            [0.0, 7.0, 83.0, 120.0, 8398.0].map(nice_top),
            [1.0, 8.0, 100.0, 200.0, 10_000.0]
        );
    }
}
