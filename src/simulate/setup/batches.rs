//! The option `--batch`: a batch next to the requests of a workload.

use config::{BatchHours, Config};
use pool::{ModelId, Span, Time};
use sim::replay::{BatchArrival, BatchTimes, Scenario};

/// The times at which loads for batches may evict. A cron expression counts as always, which is noted.
pub(super) fn times(config: &Config, notices: &mut Vec<String>) -> BatchTimes {
    match config.batch.hours {
        BatchHours::Always => BatchTimes::Always,
        BatchHours::Never => BatchTimes::Never,
        BatchHours::From(_) => {
            let notice = "batch.hours is a cron expression, but loads for the batches of --batch may evict at all times";
            notices.push(notice.to_owned());
            BatchTimes::Always
        }
    }
}

/// Reads `model=100000,2s,24h` or `model=100000,2s,24h,1h`: the requests of a batch, the time of each, the window, and the time of its
/// creation.
///
/// # Errors
/// Another form, or an unknown model.
pub(super) fn parse(
    texts: &[String],
    scenario: &Scenario,
    length: impl Fn(&str) -> Result<Span, String>,
) -> Result<Vec<BatchArrival>, String> {
    let mut batches = Vec::new();
    for text in texts {
        let wrong = || {
            format!(
                "--batch `{text}` is not of the form model=100000,2s,24h or model=100000,2s,24h,1h: requests, the time of each, the window, and the time of its creation"
            )
        };
        let (name, figures) = text.rsplit_once('=').ok_or_else(wrong)?;
        let figures: Vec<&str> = figures.split(',').collect();
        let (lines, service, window, at) = match figures[..] {
            [lines, service, window] => (lines, service, window, None),
            [lines, service, window, at] => (lines, service, window, Some(at)),
            _ => return Err(wrong()),
        };
        let lines: u64 = lines.parse().map_err(|_| wrong())?;
        let model = scenario.models.iter().position(|spec| spec.name == name);
        let model = model.ok_or_else(|| format!("--batch: there is no model `{name}`"))?;
        let at = at.map_or(Ok(Span::ZERO), &length)?;
        batches.push(BatchArrival {
            at: Time(at.0),
            model: ModelId(model as u32),
            lines,
            service: length(service)?,
            window: length(window)?,
        });
    }
    batches.sort_by_key(|batch| batch.at);
    Ok(batches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models;

    #[test]
    fn a_batch_is_read_from_its_option_and_a_wrong_one_is_explained() {
        let mut random = models::seeded(1);
        let specs = vec![models::drawn("org/a", &mut random)];
        let scenario = models::scenario(specs, Vec::new());
        let length = |text: &str| match text.strip_suffix('s') {
            Some(number) => number.parse().map(Span::from_secs).map_err(|_| "no".into()),
            None => Err(format!("`{text}`")),
        };
        let read = |text: &str| parse(&[text.to_owned()], &scenario, length);
        let batch = read("org/a=100,2s,60s,30s").expect("valid");
        assert_eq!((batch[0].lines, batch[0].at), (100, Time(30_000)));
        assert_eq!(batch[0].window, Span::from_secs(60));
        for (wrong, words) in [
            ("org/a", "is not of the form"),
            ("org/a=x,2s,3s", "is not of the form"),
            ("org/a=1,2s", "is not of the form"),
            ("org/b=1,2s,3s", "no model `org/b`"),
            ("org/a=1,2s,3h", "`3h`"),
        ] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
