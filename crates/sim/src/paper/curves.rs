//! Curves over something that a paper does not say, as SVG.

use std::fmt::Write;

use super::chart::{escape, nice_top};
use super::spread::Spread;
use super::table::short;

/// One curve.
#[derive(Clone, PartialEq, Debug)]
pub struct Curve {
    /// For the legend.
    pub name: String,
    /// A value at each place of [`Curves::places`]: the curve goes through medians, and a bar has the
    /// least and the most, as far as the axis goes; `None` breaks the curve.
    pub values: Vec<Option<Spread>>,
    /// The paper's value: a point at the right, whose place is not known, and a dashed level.
    pub published: Option<f64>,
}

/// Curves over one unknown.
#[derive(Clone, PartialEq, Debug)]
pub struct Curves {
    /// Above.
    pub title: String,
    /// What the values are.
    pub unit: String,
    /// What the places are.
    pub over: String,
    /// Where values were measured, ascending.
    pub places: Vec<f64>,
    /// Whether they stand as far from each other, whatever lies between them.
    pub even: bool,
    /// The curves.
    pub curves: Vec<Curve>,
    /// Below.
    pub text: String,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 60.0;
/// Room for the column of published points.
const RIGHT: f64 = 70.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 46.0;
/// Told apart without colour vision too.
const COLOURS: [&str; 6] = [
    "#1f4e79", "#e08214", "#4d9221", "#777777", "#c51b7d", "#000000",
];
/// Circle, square, triangles up and down, diamond, cross: around the origin.
const MARKS: [&str; 6] = [
    "M-2.6,0a2.6,2.6 0 1,0 5.2,0a2.6,2.6 0 1,0 -5.2,0z",
    "M-2.4,-2.4h4.8v4.8h-4.8z",
    "M0,-3.2l3.2,5.6h-6.4z",
    "M0,3.2l3.2,-5.6h-6.4z",
    "M0,-3.6l3.2,3.6l-3.2,3.6l-3.2,-3.6z",
    "M-0.8,-3.2h1.6v2.4h2.4v1.6h-2.4v2.4h-1.6v-2.4h-2.4v-1.6h2.4z",
];

impl Curve {
    /// Whether there is anything to draw, and to name.
    fn has_any(&self) -> bool {
        self.published.is_some() || self.values.iter().any(Option::is_some)
    }
}

impl Curves {
    /// The curves as an SVG element.
    #[must_use]
    pub fn svg(&self) -> String {
        let (low, high) = self.range();
        let mut out = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" xmlns=\"http://www.w3.org/2000/svg\" \
             font-family=\"sans-serif\" font-size=\"11\"><title>{}</title>\n",
            escape(&self.title)
        );
        self.axes(&mut out, low, high);
        let drawn = self.curves.iter().filter(|curve| curve.has_any());
        for (at, curve) in drawn.enumerate() {
            self.curve(&mut out, curve, at, low, high);
            legend(&mut out, curve, at);
        }
        out + "</svg>\n"
    }

    /// From where to where the axis of values goes: from 0, unless all lie in its upper half. It has all medians and published values, and the ends
    /// of spreads that are no more than twice those.
    fn range(&self) -> (f64, f64) {
        let spreads = || self.curves.iter().flat_map(|c| c.values.iter().flatten());
        let published = self.curves.iter().filter_map(|c| c.published);
        let levels: Vec<f64> = spreads()
            .map(|spread| spread.median)
            .chain(published)
            .collect();
        let most = levels.iter().copied().fold(0.0, f64::max);
        let ends = spreads().flat_map(|spread| [spread.low, spread.high]);
        let all = ends
            .filter(|end| *end <= 2.0 * most)
            .chain(levels.iter().copied());
        let (low, high) = all.fold((f64::INFINITY, 0.0_f64), |(low, high), v| {
            (low.min(v), high.max(v))
        });
        let high = nice_top(high);
        (if low > high / 2.0 { high / 2.0 } else { 0.0 }, high)
    }

    fn x(&self, place: f64) -> f64 {
        let (first, last) = (self.places[0], self.places[self.places.len() - 1]);
        let share = if self.even {
            let before = self.places.iter().filter(|&&other| other < place).count();
            before as f64 / (self.places.len().max(2) - 1) as f64
        } else {
            (place - first) / (last - first).max(f64::MIN_POSITIVE)
        };
        LEFT + 10.0 + share * (WIDTH - LEFT - RIGHT - 20.0)
    }

    fn axes(&self, out: &mut String, low: f64, high: f64) {
        for step in 0..=4 {
            let value = low + (high - low) * f64::from(step) / 4.0;
            let y = y(value, low, high);
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                if high <= 4.0 {
                    format!("{value:.2}")
                } else {
                    short(value)
                },
            );
        }
        let below = HEIGHT - BOTTOM + 16.0;
        for &place in &self.places {
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{}</text>",
                self.x(place),
                short(place)
            );
        }
        if self.curves.iter().any(|curve| curve.published.is_some()) {
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">published</text>",
                WIDTH - RIGHT / 2.0,
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text><text x=\"4\" y=\"{:.1}\">{}</text>",
            (LEFT + WIDTH - RIGHT) / 2.0,
            below + 18.0,
            escape(&self.over),
            TOP - 10.0,
            escape(&self.unit),
        );
    }

    fn curve(&self, out: &mut String, curve: &Curve, nth: usize, low: f64, high: f64) {
        let colour = COLOURS[nth % COLOURS.len()];
        let measured = self.places.iter().zip(&curve.values);
        let points: Vec<_> = measured
            .map(|(&place, value)| value.map(|v| (place, v)))
            .collect();
        for part in points.split(Option::is_none) {
            let line: Vec<_> = part
                .iter()
                .flatten()
                .map(|&(place, v)| format!("{:.1},{:.1}", self.x(place), y(v.median, low, high)))
                .collect();
            let _ = writeln!(
                out,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>",
                line.join(" ")
            );
        }
        for &(place, value) in points.iter().flatten() {
            let x = self.x(place);
            let at = |v: f64| y(v.min(high), low, high);
            if value.low < value.high {
                let _ = writeln!(
                    out,
                    "<line class=\"spread\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" \
                     stroke=\"{colour}\" stroke-width=\"0.7\"/>",
                    at(value.low),
                    at(value.high),
                );
            }
            let _ = writeln!(
                out,
                "<path d=\"{}\" transform=\"translate({x:.1} {:.1})\" fill=\"{colour}\"><title>{}, {}: {}</title></path>",
                MARKS[nth % MARKS.len()],
                at(value.median),
                escape(&curve.name),
                short(place),
                value.ratio(),
            );
        }
        let Some(value) = curve.published else {
            return;
        };
        let (level, right) = (y(value, low, high), WIDTH - RIGHT / 2.0);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{level:.1}\" y2=\"{level:.1}\" stroke=\"{colour}\" \
             stroke-dasharray=\"3 4\" stroke-width=\"0.7\"/><circle class=\"published\" cx=\"{right:.1}\" cy=\"{level:.1}\" \
             r=\"5.5\" fill=\"white\" stroke=\"{colour}\"/><path d=\"{}\" transform=\"translate({right:.1} {level:.1})\" \
             fill=\"white\" stroke=\"{colour}\" stroke-width=\"1.2\"><title>{}, published: {value:.2}</title></path>",
            MARKS[nth % MARKS.len()],
            escape(&curve.name),
        );
    }
}

fn y(value: f64, low: f64, high: f64) -> f64 {
    TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low)
}

/// Three names a line.
fn legend(out: &mut String, curve: &Curve, at: usize) {
    let colour = COLOURS[at % COLOURS.len()];
    let x = LEFT + 215.0 * (at % 3) as f64;
    let y = 12.0 + 16.0 * (at / 3) as f64;
    let _ = writeln!(
        out,
        "<line x1=\"{x:.0}\" x2=\"{:.0}\" y1=\"{y:.0}\" y2=\"{y:.0}\" stroke=\"{colour}\" stroke-width=\"1.5\"/>\
         <path d=\"{}\" transform=\"translate({:.0} {y:.0})\" fill=\"{colour}\"/><text x=\"{:.0}\" y=\"{:.0}\">{}</text>",
        x + 16.0,
        MARKS[at % MARKS.len()],
        x + 8.0,
        x + 20.0,
        y + 4.0,
        escape(&curve.name),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(value: f64) -> Option<Spread> {
        Spread::of([value])
    }

    fn curves() -> Curves {
        Curves {
            title: "t".to_owned(),
            unit: "%".to_owned(),
            over: "memory".to_owned(),
            places: vec![50.0, 60.0, 70.0, 80.0],
            even: false,
            curves: vec![Curve {
                name: "a < b".to_owned(),
                values: vec![one(0.0), one(100.0), None, Spread::of([40.0, 50.0, 70.0])],
                published: Some(25.0),
            }],
            text: String::new(),
        }
    }

    #[test]
    fn a_curve_goes_through_its_values_breaks_where_there_is_none_and_meets_a_published_point() {
        let svg = curves().svg();
        // Values from 274 (0) to 60 (100); places from 70 to 640.
        assert!(svg.contains("points=\"70.0,274.0 260.0,60.0\""), "{svg}");
        assert!(svg.contains("points=\"640.0,167.0\""), "{svg}");
        assert!(
            svg.contains("class=\"published\" cx=\"685.0\" cy=\"220.5\""),
            "{svg}"
        );
        // One value has a spread: from 188.4 (40) to 124.2 (70).
        assert_eq!(svg.matches("class=\"spread\"").count(), 1);
        assert!(svg.contains("y1=\"188.4\" y2=\"124.2\""), "{svg}");
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(!svg.contains("a < b"));
    }

    #[test]
    fn a_spread_that_would_flatten_the_curves_is_cut_and_marks_differ() {
        let mut curves = curves();
        curves.curves[0].values[3] = Spread::of([40.0, 50.0, 700.0]);
        assert_eq!(curves.range(), (0.0, 100.0));
        let svg = curves.svg();
        assert!(svg.contains("y1=\"188.4\" y2=\"60.0\""), "{svg}");
        let (mut second, mut empty) = (curves.curves[0].clone(), curves.curves[0].clone());
        (second.name, empty.name) = ("second".to_owned(), "without".to_owned());
        (empty.values, empty.published) = (vec![None; 4], None);
        curves.curves.extend([second, empty]);
        let svg = curves.svg();
        // Three values, a published one and the legend.
        let marks = |at: usize| svg.matches(MARKS[at]).count();
        assert_eq!([0, 1, 2].map(marks), [5, 5, 0]);
        assert!(svg.contains("second") && !svg.contains("without"));
    }

    #[test]
    fn even_places_stand_as_far_from_each_other() {
        let mut curves = curves();
        (curves.places[3], curves.even) = (1_000.0, true);
        let at = |place| curves.x(place);
        assert_eq!(at(60.0) - at(50.0), at(1_000.0) - at(70.0));
    }

    #[test]
    fn the_axis_begins_at_half_where_all_values_are_in_the_upper_half() {
        let mut curves = curves();
        assert_eq!(curves.range(), (0.0, 100.0));
        curves.curves[0].values[0] = None;
        curves.curves[0].published = None;
        curves.curves[0].values[3] = one(60.0);
        assert_eq!(curves.range(), (50.0, 100.0));
    }
}
