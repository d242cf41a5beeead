//! A strict parser of OpenMetrics text. It panics at any unexpected line.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub(crate) struct Scrape {
    pub(crate) families: BTreeMap<String, Family>,
    pub(crate) bytes: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Family {
    pub(crate) kind: String,
    pub(crate) unit: Option<String>,
    pub(crate) help: String,
    /// Values by the name of the series with its labels.
    pub(crate) series: BTreeMap<String, f64>,
    /// The names of its labels.
    pub(crate) labels: BTreeSet<String>,
}

impl Scrape {
    /// Parses the text. Panics with the line that breaks a rule.
    pub(crate) fn read(text: &str) -> Self {
        let body = text.strip_suffix("# EOF\n").expect("the text is whole only when it ends with # EOF");
        let mut families: BTreeMap<String, Family> = BTreeMap::new();
        let mut open = String::new();
        for line in body.lines() {
            if let Some(said) = line.strip_prefix("# ") {
                let mut words = said.splitn(3, ' ');
                let (what, name, rest) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
                if name != open {
                    assert!(!families.contains_key(name), "{name} is described twice, or its lines are not together");
                    families.insert(name.to_owned(), Family::default());
                    name.clone_into(&mut open);
                }
                let family = families.get_mut(name).unwrap();
                assert!(family.series.is_empty(), "described after its first series: {line}");
                match what {
                    "HELP" => rest.clone_into(&mut family.help),
                    "TYPE" => rest.clone_into(&mut family.kind),
                    "UNIT" => family.unit = Some(rest.to_owned()),
                    _ => panic!("unknown comment: {line}"),
                }
            } else {
                families.get_mut(&open).expect("described first").take(&open, line);
            }
        }
        Self { families, bytes: text.len() }
    }

    /// Every series, by its name and labels.
    pub(crate) fn names(&self) -> BTreeSet<&str> {
        self.families.values().flat_map(|family| family.series.keys().map(String::as_str)).collect()
    }

    pub(crate) fn value(&self, series: &str) -> f64 {
        let found = self.families.values().find_map(|family| family.series.get(series));
        *found.unwrap_or_else(|| panic!("there is no {series} in {:#?}", self.names()))
    }

    /// Sum of all series of a name.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        let all = self.families.values().flat_map(|family| &family.series);
        all.filter(|(series, _)| series.split('{').next() == Some(name)).map(|(_, value)| value).sum()
    }
}

impl Family {
    fn take(&mut self, name: &str, line: &str) {
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
        assert!(value.is_finite(), "{line}");
        let (whole, labels) = match series.split_once('{') {
            None => (series, ""),
            Some((whole, labels)) => (whole, labels.strip_suffix('}').unwrap_or_else(|| panic!("not closed: {line}"))),
        };
        let suffixes: &[&str] = match self.kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_bucket", "_sum", "_count"],
            kind => panic!("{name} has type {kind}"),
        };
        assert!(suffixes.iter().any(|suffix| whole == format!("{name}{suffix}")), "{whole} is no series of {name}");
        for label in labels.split(',').filter(|label| !label.is_empty()) {
            let (label, text) = label.split_once('=').unwrap_or_else(|| panic!("no label: {line}"));
            assert!(text.len() >= 2 && text.starts_with('"') && text.ends_with('"'), "{line}");
            assert!(label.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{line}");
            self.labels.insert(label.to_owned());
        }
        assert!(self.series.insert(series.to_owned(), value).is_none(), "twice: {line}");
    }
}
