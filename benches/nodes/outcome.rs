//! The results, as a table next to the aims.

use std::time::Duration;

/// One processor, and a gigabyte.
const CORES_MAX: f64 = 1.0;
const MEMORY_MAX: f64 = 1000.0;
const DECIDED_WITHIN: Duration = Duration::from_secs(5);

pub struct Outcome {
    pub nodes: u32,
    pub replicas: u32,
    pub seconds: u64,
    pub joined_in: Duration,
    pub loaded_in: Duration,
    /// The number of processors that the controller used, on average and in its busiest second.
    pub cores: f64,
    pub cores_most: f64,
    /// Its largest resident memory during the measurement, and since its start.
    pub memory_bytes: u64,
    pub memory_bytes_most: u64,
    /// Frames of all nodes per second, in both directions.
    pub frames_a_second: f64,
    /// The time from the end of a node's connection, and from its last sign of life, until the controller has decided that the node
    /// is lost. `None` if it did not decide within the bench's patience.
    pub closed: Option<Duration>,
    pub silent: Option<Duration>,
    /// The number of connections that ended unexpectedly.
    pub lost: u32,
}

/// A line of the table. Lines without an aim are informative.
struct Line {
    what: String,
    aim: &'static str,
    figure: String,
    is_met: bool,
}

impl Outcome {
    fn lines(&self) -> Vec<Line> {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        let decided = |after: Option<Duration>| match after {
            Some(after) => format!("{:.2} s", after.as_secs_f64()),
            None => "never".to_owned(),
        };
        let in_time = |after: Option<Duration>| after.is_some_and(|time| time <= DECIDED_WITHIN);
        let aimed = |what: &str, aim: &'static str, figure: String, is_met: bool| Line {
            what: what.to_owned(),
            aim,
            figure,
            is_met,
        };
        let plain = |what: String, figure: String| Line {
            what,
            aim: "",
            figure,
            is_met: true,
        };
        let seconds = self.seconds;
        vec![
            aimed(
                &format!("processor time of the controller, mean of {seconds} s"),
                "1 core",
                format!("{:.2} cores", self.cores),
                self.cores <= CORES_MAX,
            ),
            plain(
                "the same in its busiest second".to_owned(),
                format!("{:.2} cores", self.cores_most),
            ),
            aimed(
                "its resident memory, at most",
                "1,000 MB",
                format!("{:.0} MB", megabytes(self.memory_bytes)),
                megabytes(self.memory_bytes) <= MEMORY_MAX,
            ),
            plain(
                "the same since its start".to_owned(),
                format!("{:.0} MB", megabytes(self.memory_bytes_most)),
            ),
            aimed(
                "a node's connection is closed: decided after",
                "5 s",
                decided(self.closed),
                in_time(self.closed),
            ),
            aimed(
                "a node falls silent: decided after",
                "5 s",
                decided(self.silent),
                in_time(self.silent),
            ),
            aimed(
                "connections lost during the measurement",
                "0",
                self.lost.to_string(),
                self.lost == 0,
            ),
            plain(
                "frames of all nodes, both ways".to_owned(),
                format!("{:.0} a second", self.frames_a_second),
            ),
            plain(
                format!("{} nodes joined in", self.nodes),
                format!("{:.1} s", self.joined_in.as_secs_f64()),
            ),
            plain(
                format!("{} replicas were loaded in", self.replicas),
                format!("{:.1} s", self.loaded_in.as_secs_f64()),
            ),
        ]
    }

    /// Formats the results as Markdown.
    pub fn table(&self) -> String {
        let mut table = format!(
            "| {} nodes, {} replicas | aim | measured |\n|---|---:|---:|\n",
            self.nodes, self.replicas
        );
        for line in self.lines() {
            let Line {
                what, aim, figure, ..
            } = line;
            table += &format!("| {what} | {aim} | {figure} |\n");
        }
        table
    }

    /// The lines whose aim was missed.
    pub fn missed(&self) -> Vec<String> {
        let missed = self.lines().into_iter().filter(|line| !line.is_met);
        missed.map(|line| line.what).collect()
    }
}
