//! Writes SVG: shapes and escaped texts on a canvas of a fixed size.

use std::fmt::Write as _;

/// Colours by class, for a light and a dark page.
const STYLE: &str = "\
text { font-family: system-ui, sans-serif; font-size: 12px; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 }
.faint { fill: #59636e; font-size: 11px }
.paper { fill: #ffffff }
.grid { stroke: #d1d9e0; stroke-width: 1 }
.axis { stroke: #818b98; stroke-width: 1 }
.band { fill: #dafbe1 }
.before { fill: #ffffff; stroke: #818b98; stroke-width: 2 }
.before-line { fill: none; stroke: #818b98; stroke-width: 2; stroke-dasharray: 4 3 }
.now { fill: #0969da; stroke: #0969da; stroke-width: 2 }
.now-line { fill: none; stroke: #0969da; stroke-width: 2 }
.missed { fill: #cf222e; stroke: #cf222e; stroke-width: 2 }
.missed-line { fill: none; stroke: #cf222e; stroke-width: 2 }
.change { stroke: #afb8c1; stroke-width: 3 }
.target { stroke: #9a6700; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc }
.faint { fill: #9198a1 }
.paper { fill: #0d1117 }
.grid { stroke: #2f353d }
.axis { stroke: #9198a1 }
.band { fill: #12261e }
.before { fill: #0d1117; stroke: #9198a1 }
.before-line { stroke: #9198a1 }
.now { fill: #4493f8; stroke: #4493f8 }
.now-line { stroke: #4493f8 }
.missed { fill: #f85149; stroke: #f85149 }
.missed-line { stroke: #f85149 }
.change { stroke: #656c76 }
.target { stroke: #d29922 }
}
";

/// Alignment of a text at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

#[derive(Clone, Debug)]
pub(super) struct Svg {
    width: f64,
    height: f64,
    title: String,
    body: String,
}

impl Svg {
    /// An empty canvas with a text for readers that show no pictures.
    pub(super) fn new(width: f64, height: f64, title: &str) -> Self {
        let mut svg = Self { width, height, title: escape(title), body: String::new() };
        svg.rect("paper", (0.0, 0.0), (width, height));
        svg
    }

    pub(super) fn rect(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
        let [x, y, width, height] = [x, y, width, height].map(number);
        self.element(format_args!(r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}"/>"#));
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(number);
        self.element(format_args!(r#"<line class="{class}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#));
    }

    pub(super) fn circle(&mut self, class: &str, (x, y): (f64, f64), radius: f64) {
        let [x, y, radius] = [x, y, radius].map(number);
        self.element(format_args!(r#"<circle class="{class}" cx="{x}" cy="{y}" r="{radius}"/>"#));
    }

    pub(super) fn polyline(&mut self, class: &str, points: &[(f64, f64)]) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{},{}", number(*x), number(*y))).collect();
        self.element(format_args!(r#"<polyline class="{class}" points="{}"/>"#, points.join(" ")));
    }

    /// A text whose baseline is at `y`.
    pub(super) fn text(&mut self, class: &str, anchor: Anchor, (x, y): (f64, f64), text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let ([x, y], text) = ([x, y].map(number), escape(text));
        self.element(format_args!(r#"<text class="{class}" x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>"#));
    }

    pub(super) fn finish(self) -> String {
        let Self { width, height, title, body } = self;
        let (width, height) = (number(width), number(height));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             role=\"img\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n{body}</svg>\n"
        )
    }

    fn element(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.body, "{element}");
    }
}

/// A coordinate with at most one decimal place.
fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Escapes a text for elements and attributes. Characters that XML does not allow are replaced.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            '\t' | '\n' | '\r' => escaped.push(' '),
            control if control.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
pub(super) mod tests {
    use quick_xml::Reader;
    use quick_xml::events::Event;

    use super::*;

    /// Parses the text to its end, with all attributes and entities. Returns the texts of its elements.
    pub(in crate::charts) fn assert_well_formed(svg: &str, name: &str) -> Vec<String> {
        let mut reader = Reader::from_str(svg);
        let (mut depth, mut roots, mut texts) = (0, 0, Vec::new());
        loop {
            match reader.read_event().unwrap_or_else(|error| panic!("{name}: {error}\n{svg}")) {
                Event::Start(element) | Event::Empty(element) if depth == 0 && roots > 0 => {
                    panic!("{name}: a second root {element:?}")
                }
                Event::Start(element) => {
                    element.attributes().for_each(|attribute| drop(attribute.unwrap()));
                    roots += usize::from(depth == 0);
                    depth += 1;
                    texts.push(String::new());
                }
                Event::Empty(element) => element.attributes().for_each(|attribute| drop(attribute.unwrap())),
                Event::End(_) => depth -= 1,
                Event::Text(text) => match texts.last_mut() {
                    Some(last) => last.push_str(&text.decode().unwrap()),
                    None => assert_eq!(text.decode().unwrap().trim(), "", "{name}: text outside of the root"),
                },
                Event::GeneralRef(entity) => {
                    let entity = entity.decode().unwrap();
                    let resolved = quick_xml::escape::resolve_predefined_entity(&entity);
                    let resolved = resolved.unwrap_or_else(|| panic!("{name}: unknown entity {entity}"));
                    texts.last_mut().expect("an entity is in an element").push_str(resolved);
                }
                Event::Eof => break,
                other @ (Event::CData(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_)) => {
                    panic!("{name}: unexpected {other:?}")
                }
            }
        }
        assert_eq!((depth, roots), (0, 1), "{name}");
        texts
    }

    #[test]
    fn texts_are_escaped() {
        let label = "a < b && \"c\" > 'd' \u{1}\n</svg>";
        let mut svg = Svg::new(10.0, 10.0, label);
        svg.text("faint", Anchor::Start, (1.0, 1.0), label);
        let texts = assert_well_formed(&svg.finish(), "texts");
        let read = texts.iter().filter(|text| text.starts_with("a < b && \"c\" > 'd' \u{fffd} </svg>")).count();
        assert_eq!(read, 2, "{texts:?}");
    }

    #[test]
    fn coordinates_are_short() {
        let shown = [(0.0, "0"), (-0.01, "0"), (1.25, "1.2"), (1.26, "1.3"), (100.0, "100"), (-3.5, "-3.5")];
        for (value, text) in shown {
            assert_eq!(number(value), text);
        }
    }
}
