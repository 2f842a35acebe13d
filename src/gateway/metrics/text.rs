//! The text format of Prometheus, version 0.0.4: families with help and type, samples with escaped
//! labels, histograms with cumulative buckets.

use std::fmt::Write;

use telemetry::Histogram;

pub(crate) const PREFIX: &str = "model_pool_";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A metrics page under construction.
#[derive(Debug, Default)]
pub struct Text {
    page: String,
    /// The current family, including its prefix.
    family: String,
}

impl Text {
    /// Begins a family; all its samples must follow. `help` is a single line.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        self.foreign_family(&format!("{PREFIX}{name}"), kind, help);
    }

    /// Begins a family with a name of another program.
    pub fn foreign_family(&mut self, name: &str, kind: Kind, help: &str) {
        name.clone_into(&mut self.family);
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let family = &self.family;
        // Writing to a string cannot fail.
        let _ = write!(
            self.page,
            "# HELP {family} {help}\n# TYPE {family} {kind}\n"
        );
    }

    pub fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        self.line("", labels, None, value);
    }

    pub(crate) fn histogram(&mut self, labels: &[(&str, &str)], histogram: &Histogram) {
        let mut below = 0;
        for (nth, count) in histogram.counts().iter().enumerate() {
            below += count;
            let bound = histogram
                .bounds()
                .get(nth)
                .copied()
                .unwrap_or(f64::INFINITY);
            self.line("_bucket", labels, Some(&number(bound)), below as f64);
        }
        self.line("_sum", labels, None, histogram.sum());
        self.line("_count", labels, None, below as f64);
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], le: Option<&str>, value: f64) {
        let _ = write!(self.page, "{}{suffix}", self.family);
        let all: Vec<String> = labels
            .iter()
            .copied()
            .chain(le.map(|le| ("le", le)))
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
            .collect();
        if !all.is_empty() {
            let _ = write!(self.page, "{{{}}}", all.join(","));
        }
        let _ = writeln!(self.page, " {}", number(value));
    }

    pub fn finish(self) -> String {
        self.page
    }
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

fn number(value: f64) -> String {
    match value {
        f64::INFINITY => "+Inf".to_owned(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_include_their_upper_bound() {
        let mut histogram = Histogram::new(&[1.0, 2.0]);
        for value in [0.5, 1.0, 1.5, 99.0] {
            histogram.observe(value);
        }
        let mut text = Text::default();
        text.family("x_seconds", Kind::Histogram, "Help.");
        text.histogram(&[], &histogram);
        let expected = "# HELP model_pool_x_seconds Help.\n# TYPE model_pool_x_seconds histogram\n\
            model_pool_x_seconds_bucket{le=\"1\"} 2\nmodel_pool_x_seconds_bucket{le=\"2\"} 3\n\
            model_pool_x_seconds_bucket{le=\"+Inf\"} 4\nmodel_pool_x_seconds_sum 102\nmodel_pool_x_seconds_count 4\n";
        assert_eq!(text.finish(), expected);
    }
}
