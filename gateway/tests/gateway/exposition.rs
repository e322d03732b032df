//! A strict reader of Prometheus's text format: what promtool would complain of, it panics at.

use std::collections::{BTreeMap, BTreeSet};

type Labels = BTreeMap<String, String>;

/// All of an exposition.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    /// Type of each family.
    pub(crate) families: BTreeMap<String, String>,
    /// Name, labels, value.
    pub(crate) samples: Vec<(String, Labels, f64)>,
}

impl Exposition {
    pub(crate) fn parse(text: &str) -> Self {
        let mut all = Self::default();
        let mut helped = BTreeSet::new();
        let mut ended = BTreeSet::new();
        let mut current = String::new();
        let mut seen = BTreeSet::new();
        assert!(text.ends_with('\n'), "the last line ends");
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect(line);
                assert!(!help.trim().is_empty(), "{line}");
                assert!(helped.insert(name.to_owned()), "twice: {line}");
                continue;
            }
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect(line);
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert!(helped.contains(name), "no help before: {line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                let old = all.families.insert(name.to_owned(), kind.to_owned());
                assert_eq!(old, None, "twice: {line}");
                ended.insert(std::mem::replace(&mut current, name.to_owned()));
                continue;
            }
            assert!(!line.starts_with('#'), "{line}");
            let (series, value) = line.rsplit_once(' ').expect(line);
            let (name, labels) = series_of(series);
            assert!(is_name(&name), "{line}");
            assert!(is_of(&name, &current, &all.families), "{line} in {current}");
            assert!(seen.insert(series.to_owned()), "twice: {line}");
            let value = value.parse().expect(line);
            all.samples.push((name, labels, value));
        }
        for name in &helped {
            assert!(all.families.contains_key(name), "{name} has no type");
        }
        all.check_histograms();
        all
    }

    /// One sample with exactly these labels.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let want: Labels = labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        let mut found = self
            .samples
            .iter()
            .filter(|(n, l, _)| n == name && *l == want);
        found.next().map(|(.., value)| *value)
    }

    /// The bounds of a histogram's first series, as they are written.
    pub(crate) fn bounds(&self, name: &str) -> Vec<String> {
        let name = format!("{name}_bucket");
        let mut bounds = Vec::new();
        for (_, labels, _) in self.samples.iter().filter(|(n, ..)| *n == name) {
            let bound = labels["le"].clone();
            if bounds.contains(&bound) {
                break;
            }
            bounds.push(bound);
        }
        bounds
    }

    fn check_histograms(&self) {
        for family in self
            .families
            .iter()
            .filter(|(_, kind)| *kind == "histogram")
        {
            let name = family.0;
            let mut series: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
            for (_, labels, count) in self
                .samples
                .iter()
                .filter(|(n, ..)| *n == format!("{name}_bucket"))
            {
                let mut labels = labels.clone();
                let bound = labels.remove("le").expect("le");
                series
                    .entry(labels)
                    .or_default()
                    .push((bound.parse().unwrap(), *count));
            }
            assert!(!series.is_empty(), "{name} has no buckets");
            for (labels, buckets) in series {
                assert!(
                    buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1),
                    "{name}"
                );
                let last = buckets.last().unwrap();
                assert_eq!(last.0, f64::INFINITY, "{name}");
                let labels: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (&**k, &**v)).collect();
                let count = self.value(&format!("{name}_count"), &labels);
                assert_eq!(count, Some(last.1), "{name}");
                assert!(self.value(&format!("{name}_sum"), &labels).is_some());
            }
        }
    }
}

fn is_of(name: &str, family: &str, families: &BTreeMap<String, String>) -> bool {
    let kind = families.get(family).map(String::as_str);
    let suffix = name.strip_prefix(family);
    match kind {
        Some("histogram") => matches!(suffix, Some("_bucket" | "_sum" | "_count")),
        _ => suffix == Some(""),
    }
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
}

fn series_of(series: &str) -> (String, Labels) {
    let Some((name, rest)) = series.split_once('{') else {
        return (series.to_owned(), Labels::new());
    };
    let mut rest = rest.strip_suffix('}').expect(series);
    let mut labels = Labels::new();
    while !rest.is_empty() {
        let (label, after) = rest.split_once("=\"").expect(series);
        assert!(is_name(label) && !label.contains(':'), "{series}");
        // No value in these tests holds an escaped quote.
        let (value, after) = after.split_once('"').expect(series);
        let old = labels.insert(label.to_owned(), value.to_owned());
        assert_eq!(old, None, "twice: {series}");
        rest = after.strip_prefix(',').unwrap_or(after);
    }
    (name.to_owned(), labels)
}
